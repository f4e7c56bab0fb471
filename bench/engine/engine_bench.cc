// What the engine costs around the backend's steps.
//
//   engine_bench                        SmolLM2 (or --model FILE) on the CPU: tokens/s, step time, host gap
//   engine_bench --fake 0               the same on a backend that takes no time (--fake 5000: 5 ms a step)
//   engine_bench --fake 5000 --ahead    and takes a step while another runs
//   engine_bench --fake 0 --metrics     and with the metrics of a server
//   engine_bench --memory               memory after 1,000, 10,000 and 100,000 requests, likewise
//
// The host gap is the time from the end of a step to the next Submit, none where that came before. It is taken of the
// steps in which every stream decodes, and so are step time and decode rate; "tokens/s" is output over the whole run,
// prefill included.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/machine.h"
#include "cli/runtime.h"
#include "engine/engine.h"
#include "fakes/word_tokenizer.h"
#include "paced_backend.h"
#include "runner/cpu/cpu_backend.h"
#include "streams.h"
#include "telemetry/process_stats.h"
#include "telemetry/telemetry.h"
#include "timed_backend.h"

namespace berth::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string model;
  int threads = AllowedCpus();
  std::optional<std::int64_t> fake_us;
  bool ahead = false;
  bool memory = false;
  bool metrics = false;
  std::vector<std::int32_t> streams = {1, 8, 32, 128};
  std::int32_t prompt_tokens = 128;
  std::int32_t output_tokens = 128;
  std::int32_t rounds = 1;
  bool json = false;
};

double Mib(double bytes) { return bytes / (1 << 20); }

// A backend with room for every stream, and what belongs to it.
struct Device {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Backend> backend;
};

KvPoolShape PoolFor(std::int32_t streams, std::int32_t tokens) {
  return {.num_blocks = static_cast<std::int32_t>((streams + 1) * CeilDiv(tokens, 16)), .block_tokens = 16};
}

Device FakeDevice(const KvPoolShape& pool, std::int32_t context_tokens, std::int64_t step_us, bool ahead) {
  return {std::make_unique<test::WordTokenizer>(kFakeVocabulary),
          std::make_unique<PacedBackend>(pool, context_tokens, std::chrono::microseconds(step_us), ahead ? 2 : 1)};
}

[[noreturn]] void Die(const absl::Status& status) {
  std::cerr << "engine_bench: " << status.message() << "\n";
  std::exit(2);
}

Device CpuDevice(const Options& options, const KvPoolShape& pool) {
  absl::StatusOr<std::unique_ptr<Model>> model = cli::OpenModel({.path = options.model, .served_name = {}});
  if (!model.ok()) Die(model.status());
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::FromGguf(*(*model)->file);
  if (!tokenizer.ok()) Die(tokenizer.status());
  CpuBackendOptions cpu;
  cpu.threads = options.threads;
  cpu.pool = pool;
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCpuBackend(**model, cpu);
  if (!backend.ok()) Die(backend.status());
  return {*std::move(tokenizer), *std::move(backend)};
}

Json Figures(const std::vector<StepTimes>& log, std::int32_t streams, const Outcome& outcome) {
  std::vector<double> steps;
  std::vector<double> gaps;
  double decode_seconds = 0.0;
  for (std::size_t i = 1; i < log.size(); ++i) {
    const bool decodes = log[i].tokens == streams && log[i].rows == streams;
    const bool before = log[i - 1].tokens == streams && log[i - 1].rows == streams;
    if (!decodes || !before) continue;
    steps.push_back(ToSeconds(log[i].step) * 1e3);
    gaps.push_back(ToSeconds(log[i].gap) * 1e6);
    decode_seconds += ToSeconds(log[i].step + log[i].gap);
  }
  const double step_ms = Quantile(steps, 0.5);
  const double gap_us = Quantile(gaps, 0.5);
  return {
      {"streams", streams},
      {"tokens_per_second", static_cast<double>(outcome.output_tokens) / ToSeconds(outcome.took)},
      {"decode_tokens_per_second",
       decode_seconds > 0 ? static_cast<double>(streams) * static_cast<double>(steps.size()) / decode_seconds : 0.0},
      {"decode_steps", steps.size()},
      {"step_ms_p50", step_ms},
      {"step_ms_p99", Quantile(steps, 0.99)},
      {"host_gap_us_p50", gap_us},
      {"host_gap_us_p99", Quantile(gaps, 0.99)},
      {"host_gap_percent_of_step", step_ms > 0 ? gap_us / step_ms / 10.0 : 0.0},
      {"failed", outcome.failed},
      {"peak_memory_mib", Mib(ReadProcessStats().peak_resident_bytes)}};
}

void Print(const Json& row, bool json) {
  if (json) {
    std::cout << row.dump() << std::endl;
    return;
  }
  std::printf("%7d %9.1f %9.1f %6d %9.3f %9.3f %9.1f %9.1f %8.2f%% %7.0f\n", row["streams"].get<int>(),
              row["tokens_per_second"].get<double>(), row["decode_tokens_per_second"].get<double>(),
              row["decode_steps"].get<int>(), row["step_ms_p50"].get<double>(), row["step_ms_p99"].get<double>(),
              row["host_gap_us_p50"].get<double>(), row["host_gap_us_p99"].get<double>(),
              row["host_gap_percent_of_step"].get<double>(), row["peak_memory_mib"].get<double>());
  std::fflush(stdout);
}

int MeasureSteps(const Options& options) {
  const std::int32_t context = options.prompt_tokens + options.output_tokens;
  const std::int32_t most = *std::max_element(options.streams.begin(), options.streams.end());
  const KvPoolShape pool = PoolFor(most, context);
  Device device =
      options.fake_us ? FakeDevice(pool, context, *options.fake_us, options.ahead) : CpuDevice(options, pool);
  if (!options.json) {
    std::printf("%s, %d tokens in, %d out\n", device.backend->info().name.c_str(), options.prompt_tokens,
                options.output_tokens);
    std::printf("%7s %9s %9s %6s %9s %9s %9s %9s %9s %7s\n", "streams", "tokens/s", "decode/s", "steps", "step ms",
                "p99", "gap us", "p99", "of step", "MiB");
  }
  TimedBackend timed(device.backend.get());
  const SteadyClock clock;
  std::int64_t failed = 0;
  for (const std::int32_t streams : options.streams) {
    EngineOptions engine_options = OptionsFor(streams, context, pool);
    TelemetryOptions telemetry_options;
    telemetry_options.pool = pool;
    Telemetry telemetry(telemetry_options, &clock);
    telemetry.OnPolicy({.policy = &engine_options.policy});
    if (options.metrics) engine_options.metrics = &telemetry;
    Engine engine(engine_options, &timed, device.tokenizer.get(), &clock);
    Load load{.streams = streams,
              .requests = streams,
              .prompt_tokens = options.prompt_tokens,
              .output_tokens = 4,
              .vocab_size = device.tokenizer->vocab_size()};
    Streams(&engine, load, 1).Run();  // caches and pages are warm
    timed.TakeLog();
    load.requests = std::int64_t{streams} * options.rounds;
    load.output_tokens = options.output_tokens;
    timed.Hold();
    const Outcome outcome = Streams(&engine, load, 2).Run([&] { timed.LetGo(); });
    failed += outcome.failed;
    Print(Figures(timed.TakeLog(), streams, outcome), options.json);
  }
  return failed > 0 ? 1 : 0;
}

// Requests of all lengths, some given up; what an engine keeps of them must not grow.
int MeasureMemory(const Options& options) {
  constexpr std::int32_t kStreams = 64;
  constexpr std::int32_t kContext = 256;
  constexpr std::int64_t kTolerance = 128
                                      << 10;  // of what is allocated; requests that just ended may still be let go of
  const KvPoolShape pool = PoolFor(kStreams, kContext);
  const Device device = FakeDevice(pool, kContext, options.fake_us.value_or(0), options.ahead);
  const SteadyClock clock;
  Engine engine(OptionsFor(kStreams, kContext, pool), device.backend.get(), device.tokenizer.get(), &clock);
  std::int64_t done = 0;
  std::int64_t failed = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
  for (const std::int64_t goal : {1'000, 10'000, 100'000}) {
    const Load load{.streams = kStreams,
                    .requests = goal - done,
                    .prompt_tokens = 64,
                    .output_tokens = 32,
                    .vary = true,
                    .cancelled = 0.1,
                    .vocab_size = device.tokenizer->vocab_size()};
    failed += Streams(&engine, load, static_cast<std::uint64_t>(goal)).Run().failed;
    done = goal;
    malloc_trim(0);  // what is free is not kept
    last = static_cast<std::int64_t>(mallinfo2().uordblks);
    if (first == 0) first = last;
    const double resident = ReadProcessStats().resident_bytes;
    const Json row = {
        {"requests", done}, {"heap_in_use_bytes", last}, {"resident_mib", Mib(resident)}, {"failed", failed}};
    if (options.json) {
      std::cout << row.dump() << std::endl;
    } else {
      std::printf("%7lld requests: %10lld bytes allocated, %8.2f MiB resident\n", static_cast<long long>(done),
                  static_cast<long long>(last), Mib(resident));
      std::fflush(stdout);
    }
  }
  return failed > 0 || last > first + kTolerance ? 1 : 0;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("What the engine costs around the backend's steps");
  app.add_option("--model", options.model, "GGUF file; default: the default model in the cache");
  app.add_option("--threads", options.threads, "CPU threads")->check(CLI::PositiveNumber);
  app.add_option("--fake", options.fake_us, "no model: a backend whose steps take so many microseconds")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--ahead", options.ahead, "that backend takes a step while another runs")->needs("--fake");
  app.add_flag("--memory", options.memory,
               "memory after 1,000, 10,000 and 100,000 requests; exit code 1 if what is allocated grew");
  app.add_flag("--metrics", options.metrics, "count what a server counts");
  app.add_option("--streams", options.streams, "requests at once, one row each")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  app.add_option("--prompt", options.prompt_tokens, "tokens in")->check(CLI::PositiveNumber);
  app.add_option("--output", options.output_tokens, "tokens out")->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds, "requests of each stream")->check(CLI::PositiveNumber);
  app.add_flag("--json", options.json, "one object a row");
  CLI11_PARSE(app, argc, argv);
  return options.memory ? MeasureMemory(options) : MeasureSteps(options);
}

}  // namespace
}  // namespace berth::bench

int main(int argc, char** argv) { return berth::bench::Main(argc, argv); }
