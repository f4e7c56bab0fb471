#include "cli/runtime.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "base/machine.h"
#include "config/carry_over.h"
#include "config/size.h"

namespace berth::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDefaultModelFile = "SmolLM2-135M-Instruct.Q4_1.gguf";

fs::path CacheFolder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return cache;
  const char* home = std::getenv("HOME");
  return home != nullptr && *home != '\0' ? fs::path(home) / ".cache" : fs::path();
}

}  // namespace

absl::StatusOr<std::string> ResolveModelPath(const ModelSettings& model) {
  if (!model.path.empty()) return model.path;
  const fs::path path = CacheFolder() / "berth" / "models" / kDefaultModelFile;
  std::error_code error;
  if (!fs::exists(path, error)) {
    return absl::NotFoundError("the default model is not at " + path.string() +
                               ": 'make model' fetches it, or give a GGUF file with --model PATH");
  }
  return path.string();
}

absl::StatusOr<std::unique_ptr<Model>> OpenModel(const ModelSettings& settings) {
  const absl::StatusOr<std::string> path = ResolveModelPath(settings);
  if (!path.ok()) return path.status();
  return Model::Open(*path);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const ModelSettings& settings) {
  const absl::StatusOr<std::string> path = ResolveModelPath(settings);
  if (!path.ok()) return path.status();
  const absl::StatusOr<std::unique_ptr<GgufFile>> file = GgufFile::Open(*path);
  if (!file.ok()) return file.status();
  return Tokenizer::FromGguf(**file);
}

std::string TokenText(const Tokenizer& tokenizer, TokenId id) {
  if (id >= tokenizer.vocab_size()) return "";
  const std::string_view piece = tokenizer.Piece(id);
  return std::string(piece.empty() ? tokenizer.Spelling(id) : piece);
}

absl::StatusOr<ModelPlan> PlanModel(ServerConfig* config) {
  ModelPlan plan;
  absl::StatusOr<std::string> path = ResolveModelPath(config->model);
  if (!path.ok()) return path.status();
  config->model.path = *std::move(path);
  if (config->model.served_name.empty()) config->model.served_name = fs::path(config->model.path).stem().string();
  absl::StatusOr<std::unique_ptr<Model>> model = Model::Open(config->model.path);
  if (!model.ok()) return model.status();
  plan.model = *std::move(model);
  plan.as_trained = plan.model->config;

  std::int32_t& context = config->model.max_context_tokens;
  if (context > plan.model->config.max_context_tokens) {
    return absl::InvalidArgumentError("a context of " + std::to_string(context) + " is more than the " +
                                      std::to_string(plan.model->config.max_context_tokens) +
                                      " tokens that this model can attend to: ask for at most that in --max-context or "
                                      "model.max_context_tokens");
  }
  if (context == 0) context = plan.model->config.context_tokens;
  if (config->compute.threads == 0) config->compute.threads = AllowedCpus();
  config->kv_cache.dtype = config->kv_dtype();

  absl::StatusOr<ChosenBackend> chosen = ChooseBackend(*config);
  if (!chosen.ok()) return chosen.status();
  plan.backend = *std::move(chosen);
  plan.model->config.context_tokens = context;
  const absl::StatusOr<PoolMemory> memory = FindPoolMemory(*config, *plan.model, plan.backend);
  if (!memory.ok()) return memory.status();
  const absl::StatusOr<PoolPlan> pool = PlanPool(*config, context, *memory);
  if (!pool.ok()) return pool.status();
  plan.pool = *pool;
  plan.context = {pool->shape, pool->bytes / pool->shape.num_blocks, context};
  config->kv_cache.memory = Quantity{QuantityUnit::kBytes, pool->bytes};
  return plan;
}

absl::StatusOr<Policy> PlanPolicy(const ServerConfig& config, const PolicyContext& context, Diagnostics* findings) {
  std::optional<Policy> policy = ResolvePolicy(config, context, findings);
  if (policy) return *std::move(policy);
  if (!findings->file().empty()) return absl::InvalidArgumentError(findings->file() + ": " + findings->Summary());
  const std::vector<Diagnostic> sorted = findings->Sorted();
  const auto error = std::find_if(sorted.begin(), sorted.end(),
                                  [](const Diagnostic& finding) { return finding.severity == Severity::kError; });
  return absl::InvalidArgumentError(error->key + (error->key.empty() ? "" : ": ") + error->message);
}

absl::StatusOr<std::unique_ptr<Runtime>> StartRuntime(const ServerConfig& config, Diagnostics* findings,
                                                      const MakeMetrics& make_metrics, const LoadProgress& progress) {
  auto runtime = std::make_unique<Runtime>();
  const TimePoint start = runtime->clock.Now();
  ServerConfig& decided = runtime->config;
  decided = config;
  absl::StatusOr<ModelPlan> plan = PlanModel(&decided);
  if (!plan.ok()) return plan.status();
  const Model& model = *plan->model;
  runtime->model = plan->as_trained;
  runtime->backend_note = plan->backend.note;
  runtime->parameters = model.parameters();
  runtime->pool = plan->pool;
  runtime->policy_context = plan->context;
  absl::StatusOr<Policy> policy = PlanPolicy(decided, plan->context, findings);
  if (!policy.ok()) return policy.status();
  runtime->policy = *std::move(policy);
  AddSpareTenants(decided.max_unlisted_tenants, &runtime->policy);
  const std::int32_t context = decided.model.max_context_tokens;

  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::FromGguf(*model.file);
  if (!tokenizer.ok()) return tokenizer.status();
  runtime->tokenizer = *std::move(tokenizer);

  absl::StatusOr<std::unique_ptr<Backend>> backend =
      MakeBackend(decided, model, plan->backend, runtime->pool.shape, progress);
  if (!backend.ok()) return backend.status();
  runtime->backend = *std::move(backend);

  EngineOptions engine;
  engine.max_context_tokens = context;
  engine.policy = runtime->policy;
  engine.calibration_steps = decided.scheduler.calibration_steps;
  if (make_metrics) engine.metrics = make_metrics(*runtime);
  runtime->engine = std::make_unique<Engine>(engine, runtime->backend.get(), runtime->tokenizer.get(), &runtime->clock);
  runtime->load_time = runtime->clock.Now() - start;
  return runtime;
}

}  // namespace berth::cli
