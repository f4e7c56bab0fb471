// The CUDA kernels of this project and cuBLASLt's products on one GPU, held against what the device reaches in a copy
// and in a large product.
//
//   gpu_bench --filter 'decode/d128/.*ctx4096' --json FILE
//
// Every repetition begins with a flushed L2. GB/s count what has to come from or go to memory once; "ceiling%" is the
// least time that the measured ceilings allow, by bytes or by operations, as a share of the median.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <regex>

#include "case.h"
#include "report.h"
#include "worker.h"

namespace berth::bench {
namespace {

struct Flags {
  Settings settings;
  std::string json_path;
  std::string filter;
  std::string note;
  int repetitions = 50;
  double memory_gib = 20;
  bool quick = false;
  bool smoke = false;
  bool list = false;
};

std::vector<Case> ChooseCases(const Flags& flags) {
  std::vector<Case> chosen;
  AddCeilings(flags.settings, chosen);  // all others are held against them
  std::vector<Case> others;
  AddDecode(flags.settings, others);
  AddPrefill(flags.settings, others);
  AddGemms(flags.settings, others);
  AddQuantized(flags.settings, others);
  AddElementwise(flags.settings, others);
  AddSampling(flags.settings, others);
  const std::regex pattern(flags.filter);
  for (Case& which : others) {
    if (std::regex_search(which.name, pattern)) chosen.push_back(std::move(which));
  }
  return chosen;
}

// Anew after each case: what was measured is there whatever becomes of the rest.
bool WriteReport(const Flags& flags, const Report& report, const DeviceFacts& facts) {
  if (flags.json_path.empty()) return true;
  std::ofstream file(flags.json_path);
  file << report.Json(facts, flags.note);
  if (file.flush()) return true;
  std::fprintf(stderr, "gpu_bench: cannot write %s\n", flags.json_path.c_str());
  return false;
}

int Run(const Flags& flags) {
  const std::vector<Case> cases = ChooseCases(flags);
  if (flags.list) {
    for (const Case& which : cases) std::printf("%s\n", which.name.c_str());
    return 0;
  }
  Report report(cases);
  report.PrintHeader();
  const RunOptions options = {.repetitions = flags.repetitions,
                              .memory_limit_bytes = static_cast<std::int64_t>(flags.memory_gib * (1 << 30)),
                              .case_seconds = flags.quick ? 20 : 60};
  std::string error;
  bool written = true;
  const auto told = [&](const DeviceFacts& facts, const Outcome& outcome) {
    report.Add(outcome);
    written = written && WriteReport(flags, report, facts);
  };
  if (!RunCases(cases, options, told, &error)) {
    std::fprintf(stderr, "gpu_bench: nothing to run on: %s\n", error.c_str());
    return 2;
  }
  if (!written) return 2;
  return report.AnyFailed() ? 1 : 0;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "Measures the CUDA kernels on GPU 0: a table on stdout. Exits with 1 if a case failed, 2 if none could run.");
  app.add_option("--json", flags.json_path, "Write the results to this file");
  app.add_option("--filter", flags.filter,
                 "Only the cases in whose name this regular expression is found; ceilings always");
  app.add_option("--note", flags.note, "Goes into the JSON: a revision, a clock setting");
  app.add_option("--repetitions", flags.repetitions, "Of each case")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--memory-gib", flags.memory_gib, "Skip cases that need more")
      ->check(CLI::Range(0.001, 1024.0))
      ->capture_default_str();
  app.add_option("--chunk-tokens", flags.settings.decode_chunk_tokens,
                 "Positions that a block of decode attention takes")
      ->capture_default_str();
  app.add_option("--cublaslt", flags.settings.cublaslt_path, "cuBLASLt's library, where it is not found by itself");
  app.add_flag("--quick", flags.quick, "Fewer shapes, 20 repetitions");
  app.add_flag("--smoke", flags.smoke, "Every case once at toy size: shows that it runs, measures nothing");
  app.add_flag("--list", flags.list, "Print the names of the cases");
  CLI11_PARSE(app, argc, argv);
  if (flags.quick) {
    flags.settings.extent = Extent::kQuick;
    flags.repetitions = 20;
  }
  if (flags.smoke) {
    flags.settings.extent = Extent::kToy;
    flags.repetitions = 1;
  }
  try {
    return Run(flags);
  } catch (const std::regex_error& error) {
    std::fprintf(stderr, "gpu_bench: --filter is no regular expression: %s\n", error.what());
    return 2;
  }
}

}  // namespace
}  // namespace berth::bench

int main(int argc, char** argv) { return berth::bench::Main(argc, argv); }
