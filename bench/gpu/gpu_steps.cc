// What a step takes on the GPU and what the host adds to it, for models of a shape whose weights are noise.
//
//   gpu_steps --shape llama-3-8b --streams 1,32,256 --json FILE
//
// The engine runs as in a server; the tokenizer is one of numbered words. Of the steps in which every stream decodes:
// "busy" is the device's own time from a step's first copy to its last, "exposed" what lies between the end of one step
// and the end of the next beyond that, so what the device waited for the host. "least GB" is what a step has to read at
// least: all matrices once, and the keys and values of every stream.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "fakes/word_tokenizer.h"
#include "model_shapes.h"
#include "runner/cuda/cuda_backend.h"
#include "shape_model.h"
#include "step_log.h"
#include "streams.h"

namespace berth::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  std::vector<std::string> shapes;
  std::vector<std::int32_t> streams = {1, 32, 256};
  std::int32_t prompt_tokens = 448;
  std::int32_t output_tokens = 128;
  bool int8 = false;
  bool smoke = false;
  std::string cublaslt_path;
  std::string json_path;
};

constexpr std::int32_t kStepBlockTokens = 16;

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0.0 : sum / static_cast<double>(values.size());
}

Json Figures(const std::vector<LoggedStep>& log, std::int32_t streams, const ShapeModel& model, KvDtype kv_dtype) {
  std::vector<double> busy;
  std::vector<double> exposed;
  std::vector<double> interval;
  std::vector<double> bytes;
  const auto kv_bytes = static_cast<double>(model.model().config.kv_shape().BytesPerToken(kv_dtype));
  for (std::size_t i = 1; i < log.size(); ++i) {
    const bool decodes = log[i].tokens == streams && log[i - 1].tokens == streams && log[i].rows == streams;
    if (!decodes) continue;
    busy.push_back(ToSeconds(log[i].busy));
    interval.push_back(ToSeconds(log[i].interval));
    exposed.push_back(std::max(0.0, interval.back() - busy.back()));
    bytes.push_back(static_cast<double>(model.step_weight_bytes()) + static_cast<double>(log[i].kv_tokens) * kv_bytes);
  }
  const double seconds = Quantile(interval, 0.5);
  return {{"steps", busy.size()},
          {"busy_seconds", {{"median", Quantile(busy, 0.5)}, {"p99", Quantile(busy, 0.99)}}},
          {"step_seconds", {{"median", seconds}, {"p99", Quantile(interval, 0.99)}}},
          {"exposed_host_seconds", {{"median", Quantile(exposed, 0.5)}, {"p99", Quantile(exposed, 0.99)}}},
          {"tokens_per_second", seconds > 0 ? streams / seconds : 0.0},
          {"least_bytes", Mean(bytes)}};
}

void PrintRow(const std::string& shape, std::int32_t streams, const Json& row) {
  if (row.contains("fault")) {
    std::printf("%-14s %7d  failed: %s\n", shape.c_str(), streams, row["fault"].get<std::string>().c_str());
  } else {
    std::printf("%-14s %7d %6d %10.3f %10.3f %11.1f %11.1f %11.0f %9.3f\n", shape.c_str(), streams,
                row["steps"].get<int>(), row["busy_seconds"]["median"].get<double>() * 1e3,
                row["step_seconds"]["median"].get<double>() * 1e3,
                row["exposed_host_seconds"]["median"].get<double>() * 1e6,
                row["exposed_host_seconds"]["p99"].get<double>() * 1e6, row["tokens_per_second"].get<double>(),
                row["least_bytes"].get<double>() / 1e9);
  }
  std::fflush(stdout);
}

// Everything for one shape; `told` is called with the rows so far. The pool holds the most streams at their full
// length.
void RunShape(const ModelShape& shape, const Flags& flags, const std::function<void(const Json& rows)>& told) {
  const std::int32_t context = flags.prompt_tokens + flags.output_tokens;
  const std::int32_t most = *std::max_element(flags.streams.begin(), flags.streams.end());
  const ShapeModel model(shape, context);
  CudaBackendOptions options;
  options.noise_weights = true;
  options.kv_dtype = flags.int8 ? KvDtype::kInt8 : KvDtype::kBf16;
  options.max_sequences = most;
  options.cublaslt_path = flags.cublaslt_path;
  options.pool = {static_cast<std::int32_t>((most + 1) * CeilDiv(context, kStepBlockTokens)), kStepBlockTokens};
  Json rows = Json::array();
  const auto add = [&](std::int32_t streams, Json row) {
    PrintRow(shape.name, streams, row);
    row["streams"] = streams;
    rows.push_back(std::move(row));
    told(rows);
  };
  const absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCudaBackend(model.model(), options);
  if (!backend.ok()) {
    add(most, {{"fault", std::string(backend.status().message())}});
    return;
  }
  StepLog log(backend->get());
  const test::WordTokenizer tokenizer(shape.vocabulary);
  const SteadyClock clock;
  for (const std::int32_t streams : flags.streams) {
    Engine engine(OptionsFor(streams, context, options.pool), &log, &tokenizer, &clock);
    Load load{.streams = streams,
              .requests = streams,
              .prompt_tokens = flags.prompt_tokens,
              .output_tokens = flags.output_tokens,
              .vocab_size = shape.vocabulary};
    std::int64_t failed = Streams(&engine, load, 1).Run().failed;  // graphs are captured, pages are warm
    log.Take();
    failed += Streams(&engine, load, 2).Run().failed;
    Json row = Figures(log.Take(), streams, model, options.kv_dtype);
    if (failed > 0) row["fault"] = std::to_string(failed) + " requests failed: " + std::string(log.fault().message());
    add(streams, std::move(row));
  }
}

// Anew after each row: what was measured is there whatever becomes of the rest.
bool WriteReport(const Flags& flags, const Json& report) {
  if (flags.json_path.empty()) return true;
  std::ofstream file(flags.json_path);
  file << report.dump(1) << "\n";
  if (file.flush()) return true;
  std::fprintf(stderr, "gpu_steps: cannot write %s\n", flags.json_path.c_str());
  return false;
}

int Run(const Flags& flags) {
  Json report = Json::array();
  bool failed = false;
  bool written = true;
  std::printf("%-14s %7s %6s %10s %10s %11s %11s %11s %9s\n", "shape", "streams", "steps", "busy ms", "step ms",
              "exposed us", "p99", "tokens/s", "least GB");
  for (const ModelShape& shape : ModelsOf(flags.smoke ? Extent::kToy : Extent::kFull)) {
    const bool wanted =
        flags.shapes.empty() || std::find(flags.shapes.begin(), flags.shapes.end(), shape.name) != flags.shapes.end();
    if (!wanted) continue;
    report.push_back(
        {{"shape", shape.name}, {"prompt_tokens", flags.prompt_tokens}, {"output_tokens", flags.output_tokens}});
    RunShape(shape, flags, [&](const Json& rows) {
      failed |= rows.back().contains("fault");
      report.back()["rows"] = rows;
      written = written && WriteReport(flags, report);
    });
  }
  if (!written) return 2;
  return failed ? 1 : 0;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Step time and exposed host time on GPU 0, for the shapes of models. Exits with 1 if a row failed.");
  app.add_option("--shape", flags.shapes, "llama-3-8b, smollm2-135m; default: both");
  app.add_option("--streams", flags.streams, "Requests at once, one row each")
      ->delimiter(',')
      ->check(CLI::Range(1, 2048));
  app.add_option("--prompt", flags.prompt_tokens, "Tokens in")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  app.add_option("--output", flags.output_tokens, "Tokens out")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  app.add_flag("--int8", flags.int8, "Keys and values in int8");
  app.add_flag("--smoke", flags.smoke, "A toy shape: shows that it runs, measures nothing");
  app.add_option("--cublaslt", flags.cublaslt_path, "cuBLASLt's library, where it is not found by itself");
  app.add_option("--json", flags.json_path, "Write the results to this file");
  CLI11_PARSE(app, argc, argv);
  if (flags.smoke) {
    flags.streams = {1, 3};
    flags.prompt_tokens = 5;
    flags.output_tokens = 6;
  }
  return Run(flags);
}

}  // namespace
}  // namespace berth::bench

int main(int argc, char** argv) { return berth::bench::Main(argc, argv); }
