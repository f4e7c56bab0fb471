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
#include "cli/backend_plan.h"
#include "cli/load_progress.h"
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

// A model that fits, what would run it on this machine now, and the pool it would get.
struct ModelPlan {
  std::unique_ptr<Model> model;  // its context_tokens: what is served
  ModelConfig as_trained;
  ChosenBackend backend;
  PoolPlan pool;
  PolicyContext context;
};
// Opens the configuration's model and decides what the configuration leaves open: path, name, context, threads,
// backend, KV type and memory.
absl::StatusOr<ModelPlan> PlanModel(ServerConfig* config);

// The policy of the configuration for this pool. Findings are told to `findings`; where one is an error, the status is
// that error or, where they are of a file, their number.
absl::StatusOr<Policy> PlanPolicy(const ServerConfig& config, const PolicyContext& context, Diagnostics* findings);

// Everything that runs a request in this process. Members outlive those below them.
struct Runtime {
  ServerConfig config;  // with what was auto or empty decided
  ModelConfig model;
  std::int64_t parameters = 0;
  std::string backend_note;  // ChosenBackend's
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

// As PlanPolicy for what is found in the configuration. Without `make_metrics` nobody counts. `progress`: as weights
// are loaded; without it nothing is shown but on a terminal.
absl::StatusOr<std::unique_ptr<Runtime>> StartRuntime(const ServerConfig& config, Diagnostics* findings,
                                                      const MakeMetrics& make_metrics = {},
                                                      const LoadProgress& progress = ShowLoadProgress());

}  // namespace berth::cli
