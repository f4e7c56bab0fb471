// From a ServerConfig to something that runs: model, tokenizer, backend and engine, made in one place.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "berth/backend.h"
#include "berth/clock.h"
#include "berth/metrics.h"
#include "berth/policy.h"
#include "config/diagnostics.h"
#include "config/resolve_policy.h"
#include "config/server_config.h"
#include "engine/engine.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace berth::cli {

// The model file to open: `model.path`, or the default model in the user's cache. A path that is no file, and a default
// model that was never fetched, are errors that say what to do.
absl::StatusOr<std::string> ResolveModelPath(const ModelSettings& model);

// Opens the model file and its tokenizer: all that tokenize, detokenize and inspect need.
absl::StatusOr<std::unique_ptr<Model>> OpenModel(const ModelSettings& settings);
absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const ModelSettings& settings);

// What a token adds to a text; the spelling of control tokens, which add nothing; empty for ids past the vocabulary
// (the model's may be padded).
std::string TokenText(const Tokenizer& tokenizer, TokenId id);

// Memory that the model's weights take once they are packed for running, roughly and rather too much than too little.
std::int64_t EstimateWeightBytes(const Model& model, bool float32);

// How large the KV pool becomes.
struct PoolPlan {
  KvPoolShape shape;
  std::int64_t bytes = 0;
};
// `free_bytes`: what is free once the weights are loaded, used where the memory is auto. Errors name the flag to
// change.
absl::StatusOr<PoolPlan> PlanPool(const ServerConfig& config, const KvShape& kv, std::int32_t context_tokens,
                                  std::int64_t free_bytes);

// A model that fits, and the pool it would get on this machine now.
struct ModelPlan {
  std::unique_ptr<Model> model;
  PoolPlan pool;
  PolicyContext context;
};
// Opens the configuration's model and decides what the configuration leaves open: path, name, context, threads, KV type
// and memory.
absl::StatusOr<ModelPlan> PlanModel(ServerConfig* config);

// The policy of the configuration for this pool. Findings are told to `findings`; where one is an error, the status is
// that error or, where they are of a file, their number.
absl::StatusOr<Policy> PlanPolicy(const ServerConfig& config, const PolicyContext& context, Diagnostics* findings);

// Everything that runs a request in this process. Members outlive those below them.
struct Runtime {
  ServerConfig config;  // with what was auto or empty decided
  ModelConfig model;
  std::int64_t parameters = 0;
  PoolPlan pool;
  PolicyContext policy_context;
  Policy policy;
  SteadyClock clock;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Engine> engine;
  Duration load_time{};
};

// Makes what the engine tells its metrics to, once everything but the engine is there; it must outlive the engine.
using MakeMetrics = std::function<MetricSink*(const Runtime& runtime)>;

// As PlanPolicy for what is found in the configuration. Without `make_metrics` nobody counts.
absl::StatusOr<std::unique_ptr<Runtime>> StartRuntime(const ServerConfig& config, Diagnostics* findings,
                                                      const MakeMetrics& make_metrics = {});

}  // namespace berth::cli
