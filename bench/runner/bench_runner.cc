// The CPU backend alone, driven with StepPlans: tokens per second of decoding B sequences at once and of prefilling
// one, and where the time of a step goes.
//
//   bench_runner --model SmolLM2-135M-Instruct.Q4_1.gguf [--decode 1,8,32 --context 256 --steps 32] [--prefill 512]
//
// Rounds are interleaved: each runs every case once, and a case's figure is its median, beside its best and worst. What
// one core reaches in register loops and in a streaming read is measured before the first round and after the last:
// where the two differ, something else was running.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "machine_peak.h"
#include "model/model.h"
#include "runner/cpu/cpu_backend.h"

namespace berth::bench {
namespace {

constexpr std::int32_t kBlockTokens = 16;
constexpr std::size_t kPeakReadBytes = std::size_t{96} << 20;

struct Options {
  std::string model;
  int threads = 2;
  std::string kv_dtype = "bf16";
  std::vector<std::int32_t> decode = {1, 8, 32};
  std::int32_t context = 256;
  std::int32_t steps = 32;
  std::vector<std::int32_t> prefill = {512};
  int rounds = 5;
  bool json = false;
};

struct Case {
  std::string name;
  std::int32_t streams = 0;  // decoding; 0: prefill
  std::int32_t prompt = 0;
  std::vector<double> tokens_per_second = {};  // by round
  StageTimes stages = {};
  Duration busy = {};
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Driver {
 public:
  Driver(const Options& options, const Model& model, std::int32_t tokens_per_stream, std::int32_t streams)
      : options_(options), table_blocks_(static_cast<std::int32_t>(CeilDiv(tokens_per_stream, kBlockTokens))) {
    CpuBackendOptions backend;
    backend.threads = options.threads;
    for (const KvDtype dtype : {KvDtype::kFloat32, KvDtype::kBf16, KvDtype::kInt8}) {
      if (options.kv_dtype == KvDtypeName(dtype)) backend.kv_dtype = dtype;
    }
    backend.pool = {table_blocks_ * streams, kBlockTokens};
    backend.stage_times = &stages_;
    absl::StatusOr<std::unique_ptr<Backend>> made = MakeCpuBackend(model, backend);
    if (!made.ok()) {
      std::fprintf(stderr, "bench_runner: %s\n", std::string(made.status().message()).c_str());
      std::exit(1);
    }
    backend_ = *std::move(made);
  }

  const std::string& backend_name() const { return backend_->info().name; }

  void Run(Case* c) {
    if (c->streams == 0) {
      BeginMeasuring();
      const double seconds = Prefill(0, c->prompt);
      EndMeasuring(c, c->prompt / seconds);
      return;
    }
    std::vector<TokenId> last;
    for (std::int32_t stream = 0; stream < c->streams; ++stream) {
      Prefill(stream, options_.context);
      last.push_back(result_.logits.back().token);
    }
    Decode(&last, options_.context);
    BeginMeasuring();
    const auto begin = std::chrono::steady_clock::now();
    for (std::int32_t step = 1; step <= options_.steps; ++step) Decode(&last, options_.context + step);
    const Duration took = std::chrono::steady_clock::now() - begin;
    EndMeasuring(c, c->streams * options_.steps / ToSeconds(took));
  }

 private:
  void BeginMeasuring() {
    stages_ = {};
    busy_ = {};
  }

  void EndMeasuring(Case* c, double tokens_per_second) const {
    c->tokens_per_second.push_back(tokens_per_second);
    for (std::size_t i = 0; i < kStages; ++i) c->stages.time[i] += stages_.time[i];
    c->busy += busy_;
  }

  void AddRow(std::int32_t stream, std::int32_t first_position, const std::vector<TokenId>& ids) {
    StepRow row;
    row.first_position = first_position;
    row.token_begin = static_cast<std::int32_t>(plan_.token_ids.size());
    row.num_tokens = static_cast<std::int32_t>(ids.size());
    row.block_begin = static_cast<std::int32_t>(plan_.block_ids.size());
    row.num_blocks = table_blocks_;
    plan_.rows.push_back(row);
    plan_.token_ids.insert(plan_.token_ids.end(), ids.begin(), ids.end());
    for (std::int32_t i = 0; i < table_blocks_; ++i) plan_.block_ids.push_back(stream * table_blocks_ + i);
    LogitRow logits;
    logits.token_index = row.token_begin + row.num_tokens - 1;
    logits.sampling.spec = &greedy_;
    plan_.logit_rows.push_back(logits);
  }

  double Step() {
    ++plan_.step;
    const auto begin = std::chrono::steady_clock::now();
    const bool ok = backend_->Submit(plan_).ok() && backend_->Await(&result_).ok();
    const Duration took = std::chrono::steady_clock::now() - begin;
    if (!ok) std::exit(1);
    busy_ += result_.busy;
    plan_.Clear();
    return ToSeconds(took);
  }

  double Prefill(std::int32_t stream, std::int32_t tokens) {
    std::minstd_rand random(static_cast<unsigned>(stream) + 1);
    std::vector<TokenId> ids(static_cast<std::size_t>(tokens));
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % static_cast<unsigned>(backend_->info().vocab_size));
    AddRow(stream, 0, ids);
    return Step();
  }

  void Decode(std::vector<TokenId>* last, std::int32_t position) {
    for (std::size_t i = 0; i < last->size(); ++i) AddRow(static_cast<std::int32_t>(i), position, {(*last)[i]});
    Step();
    for (std::size_t i = 0; i < last->size(); ++i) (*last)[i] = result_.logits[i].token;
  }

  const Options options_;
  const std::int32_t table_blocks_;
  const SamplingSpec greedy_ = [] {
    SamplingSpec spec;
    spec.temperature = 0.0F;
    return spec;
  }();
  StageTimes stages_;
  Duration busy_{};
  std::unique_ptr<Backend> backend_;
  StepPlan plan_;
  StepResult result_;
};

nlohmann::json ToJson(const MachinePeak& peak) {
  return {
      {"integer_gops", peak.integer_gops}, {"float_gflops", peak.float_gflops}, {"read_gb_per_s", peak.read_gb_per_s}};
}

nlohmann::json ToJson(const Case& c) {
  nlohmann::json stages;
  for (std::size_t i = 0; i < kStages; ++i) {
    stages[StageName(static_cast<Stage>(i))] = ToSeconds(c.stages.time[i]) / ToSeconds(c.busy);
  }
  return {{"name", c.name},
          {"tokens_per_second", c.tokens_per_second},
          {"median", Median(c.tokens_per_second)},
          {"share_of_time", stages}};
}

void PrintPeak(const char* when, const MachinePeak& peak) {
  std::printf("one core %s: %.0f integer GOP/s, %.0f GFLOP/s, read %.1f GB/s\n", when, peak.integer_gops,
              peak.float_gflops, peak.read_gb_per_s);
}

void Print(const Case& c) {
  const auto [worst, best] = std::minmax_element(c.tokens_per_second.begin(), c.tokens_per_second.end());
  std::printf("%-14s %8.1f tokens/s (%.1f to %.1f)  ", c.name.c_str(), Median(c.tokens_per_second), *worst, *best);
  for (std::size_t i = 0; i < kStages; ++i) {
    std::printf(" %s %.1f%%", StageName(static_cast<Stage>(i)), 100 * ToSeconds(c.stages.time[i]) / ToSeconds(c.busy));
  }
  std::printf("\n");
}

int RunAll(const Options& options) {
  absl::StatusOr<std::unique_ptr<Model>> model = Model::Open(options.model);
  if (!model.ok()) {
    std::fprintf(stderr, "bench_runner: %s\n", std::string(model.status().message()).c_str());
    return 1;
  }
  std::vector<Case> cases;
  std::int32_t tokens = options.context + options.steps + 1;
  std::int32_t streams = 1;
  for (const std::int32_t count : options.decode) {
    cases.push_back({.name = "decode " + std::to_string(count), .streams = count});
    streams = std::max(streams, count);
  }
  for (const std::int32_t count : options.prefill) {
    cases.push_back({.name = "prefill " + std::to_string(count), .prompt = count});
    tokens = std::max(tokens, count);
  }
  Driver driver(options, **model, tokens, streams);
  const cpu::CpuLevel level = cpu::DetectCpuLevel();
  const MachinePeak before = MeasurePeak(level, kPeakReadBytes);
  for (int round = 0; round < options.rounds; ++round) {
    for (Case& c : cases) driver.Run(&c);
  }
  const MachinePeak after = MeasurePeak(level, kPeakReadBytes);
  if (options.json) {
    nlohmann::json json = {{"backend", driver.backend_name()}, {"kv_dtype", options.kv_dtype},
                           {"context", options.context},       {"steps", options.steps},
                           {"peak_before", ToJson(before)},    {"peak_after", ToJson(after)}};
    for (const Case& c : cases) json["cases"].push_back(ToJson(c));
    std::printf("%s\n", json.dump(2).c_str());
    return 0;
  }
  std::printf("%s, KV in %s, context %d\n", driver.backend_name().c_str(), options.kv_dtype.c_str(), options.context);
  PrintPeak("before", before);
  for (const Case& c : cases) Print(c);
  PrintPeak("after", after);
  return 0;
}

}  // namespace
}  // namespace berth::bench

int main(int argc, char** argv) {
  berth::bench::Options options;
  CLI::App app("The CPU backend alone: tokens per second and where a step's time goes.");
  app.add_option("--model", options.model, "a GGUF file")->required();
  app.add_option("--threads", options.threads)->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--kv-dtype", options.kv_dtype)->check(CLI::IsMember({"bf16", "int8"}))->capture_default_str();
  app.add_option("--decode", options.decode, "numbers of sequences")->delimiter(',')->check(CLI::Range(1, 1024));
  app.add_option("--context", options.context, "tokens before decoding")
      ->check(CLI::Range(1, 2048))
      ->capture_default_str();
  app.add_option("--steps", options.steps, "decode steps of a round")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--prefill", options.prefill, "prompt lengths")->delimiter(',')->check(CLI::Range(1, 2048));
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_flag("--json", options.json);
  CLI11_PARSE(app, argc, argv);
  return berth::bench::RunAll(options);
}
