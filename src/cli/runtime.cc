#include "cli/runtime.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "admission/policy_check.h"
#include "base/machine.h"
#include "config/policy_settings.h"
#include "config/size.h"
#include "runner/cpu/cpu_backend.h"

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

std::int64_t EstimateWeightBytes(const Model& model, bool float32) {
  std::int64_t bytes = 0;
  for (const GgufTensor& tensor : model.file->tensors()) {
    // Packed codes come with wider scales than the file's: at most twice the file's bytes, for Q6_K.
    bytes += float32 ? 4 * tensor.elements() : 2 * static_cast<std::int64_t>(tensor.data.size());
  }
  return bytes;
}

absl::StatusOr<PoolPlan> PlanPool(const ServerConfig& config, const KvShape& kv, std::int32_t context_tokens,
                                  std::int64_t free_bytes) {
  const std::int32_t block_tokens = config.kv_cache.block_tokens;
  const std::int64_t block_bytes = kv.BytesPerToken(config.kv_dtype()) * block_tokens;
  std::int64_t blocks = 0;
  if (config.kv_cache.memory_bytes > 0) {
    blocks = config.kv_cache.memory_bytes / block_bytes;
  } else {
    const std::int64_t most = config.kv_cache.auto_max_contexts * CeilDiv(context_tokens, block_tokens);
    blocks = std::min(free_bytes / 2 / block_bytes, most);
  }
  blocks = std::min<std::int64_t>(blocks, INT32_MAX);
  if (blocks < 1) {
    return config.kv_cache.memory_bytes > 0
               ? absl::InvalidArgumentError("--kv-memory " + FormatBytes(config.kv_cache.memory_bytes) +
                                            " is less than one KV block of " + FormatBytes(block_bytes) +
                                            ": give more, or smaller blocks with --block-tokens")
               : absl::ResourceExhaustedError(
                     "too little memory is free for a KV cache: " + FormatBytes(std::max<std::int64_t>(free_bytes, 0)) +
                     " beside the weights; free some, or set --kv-memory");
  }
  PoolPlan plan;
  plan.shape = {static_cast<std::int32_t>(blocks), block_tokens};
  plan.shape.host_blocks =
      static_cast<std::int32_t>(std::min<std::int64_t>(config.kv_cache.host_swap_bytes / block_bytes, INT32_MAX));
  plan.bytes = blocks * block_bytes;
  return plan;
}

absl::StatusOr<Policy> PlanPolicy(const ServerConfig& config, const KvPoolShape& pool, std::int32_t context_tokens) {
  Policy policy = ResolvePolicy(config, pool, context_tokens);
  for (ClassPolicy& c : policy.classes) {
    c.slot_guarantee = DefaultSlotGuarantee(c.kv_guarantee_blocks, pool.num_blocks, policy.max_running_sequences);
  }
  if (absl::Status status = ValidatePolicy(policy, pool); !status.ok()) return status;
  return policy;
}

absl::StatusOr<std::unique_ptr<Runtime>> StartRuntime(const ServerConfig& config) {
  auto runtime = std::make_unique<Runtime>();
  const TimePoint start = runtime->clock.Now();
  ServerConfig& decided = runtime->config;
  decided = config;

  const absl::StatusOr<std::string> path = ResolveModelPath(config.model);
  if (!path.ok()) return path.status();
  decided.model.path = *path;
  if (decided.model.served_name.empty()) decided.model.served_name = fs::path(*path).stem().string();
  absl::StatusOr<std::unique_ptr<Model>> model = Model::Open(*path);
  if (!model.ok()) return model.status();
  runtime->model = (*model)->config;
  runtime->parameters = (*model)->parameters();

  std::int32_t& context = decided.model.max_context_tokens;
  if (context > runtime->model.max_context_tokens) {
    return absl::InvalidArgumentError("--max-context " + std::to_string(context) + " is more than the " +
                                      std::to_string(runtime->model.max_context_tokens) +
                                      " tokens that this model can attend to: ask for at most that");
  }
  if (context == 0) context = runtime->model.context_tokens;
  (*model)->config.context_tokens = context;
  if (decided.compute.threads == 0) decided.compute.threads = AllowedCpus();
  decided.kv_cache.dtype = config.kv_dtype();

  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::FromGguf(*(*model)->file);
  if (!tokenizer.ok()) return tokenizer.status();
  runtime->tokenizer = *std::move(tokenizer);

  const std::int64_t free_bytes = AvailableMemoryBytes() - EstimateWeightBytes(**model, config.compute.float32);
  absl::StatusOr<PoolPlan> pool = PlanPool(decided, runtime->model.kv_shape(), context, free_bytes);
  if (!pool.ok()) return pool.status();
  runtime->pool = *pool;
  decided.kv_cache.memory_bytes = pool->bytes;

  absl::StatusOr<Policy> policy = PlanPolicy(decided, runtime->pool.shape, context);
  if (!policy.ok()) return policy.status();
  runtime->policy = *std::move(policy);

  CpuBackendOptions options;
  options.threads = decided.compute.threads;
  options.compute = decided.compute.float32 ? ComputeMode::kFloat32 : ComputeMode::kDefault;
  options.kv_dtype = decided.kv_dtype();
  options.pool = runtime->pool.shape;
  options.max_step_tokens = decided.scheduler.max_batched_tokens;
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCpuBackend(**model, options);
  if (!backend.ok()) return backend.status();
  runtime->backend = *std::move(backend);

  EngineOptions engine;
  engine.max_context_tokens = context;
  engine.policy = runtime->policy;
  engine.calibration_steps = decided.scheduler.calibration_steps;
  runtime->engine = std::make_unique<Engine>(engine, runtime->backend.get(), runtime->tokenizer.get(), &runtime->clock);
  runtime->load_time = runtime->clock.Now() - start;
  return runtime;
}

}  // namespace berth::cli
