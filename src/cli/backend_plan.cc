#include "cli/backend_plan.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "base/machine.h"
#include "config/carry_over.h"
#include "config/size.h"
#include "runner/cpu/cpu_backend.h"

namespace berth::cli {
namespace {

constexpr std::int32_t kHostAutoContexts = 16;
constexpr std::int64_t kDeviceAutoPercent = 90;

constexpr const char* kOrTheCpu = "; or take the CPU with --backend cpu or compute.backend: cpu";

std::string Name(const CudaDevice& device) {
  return "CUDA device " + std::to_string(device.index) + " (" + device.name + ")";
}

CudaBackendOptions DeviceOptions(const ServerConfig& config, const CudaDevice& device, const KvPoolShape& pool) {
  CudaBackendOptions options;
  options.device = device.index;
  options.kv_dtype = config.kv_dtype();
  options.pool = pool;
  options.max_step_tokens = config.scheduler.max_batched_tokens;
  options.max_sequences = config.scheduler.max_running_sequences;
  options.max_top_logprobs = config.request.max_logprobs;
  return options;
}

absl::Status WithRemedy(const absl::Status& status) {
  return absl::Status(status.code(), std::string(status.message()) + kOrTheCpu);
}

absl::Status NoSuchDevice(int devices, std::int32_t index) {
  if (!HasCudaBackend()) {
    return absl::FailedPreconditionError(
        std::string("this berth was built without CUDA: build it with -DBERTH_CUDA=ON") + kOrTheCpu);
  }
  if (devices == 0) {
    return absl::FailedPreconditionError(std::string("no CUDA device, or no driver for it, is on this machine") +
                                         kOrTheCpu);
  }
  return absl::InvalidArgumentError("there is no CUDA device " + std::to_string(index) + ": they are numbered 0 to " +
                                    std::to_string(devices - 1) +
                                    "; change --device or compute.device (berth devices lists them)");
}

std::int32_t HostBlocks(const ServerConfig& config, std::int64_t block_bytes) {
  return static_cast<std::int32_t>(std::min<std::int64_t>(config.kv_cache.host_swap_bytes / block_bytes, INT32_MAX));
}

// In two parts: the product would not fit.
std::int64_t ShareOf(std::int64_t bytes, std::int64_t millionths) {
  return bytes / kWholeMillionths * millionths + bytes % kWholeMillionths * millionths / kWholeMillionths;
}

}  // namespace

absl::StatusOr<ChosenBackend> ChooseBackend(const ServerConfig& config) {
  const ComputeSettings& compute = config.compute;
  if (compute.backend == BackendChoice::kCpu) return ChosenBackend{};
  const bool must = compute.backend == BackendChoice::kCuda;
  if (compute.float32 || config.kv_dtype() == KvDtype::kFloat32) {
    if (!must) return ChosenBackend{};
    return absl::InvalidArgumentError(
        "float32 is computed and stored on the CPU alone: take --compute, --kv-dtype float32, compute.float32 or "
        "kv_cache.dtype out, or --backend cuda and compute.backend");
  }
  const absl::StatusOr<int> devices = CountCudaDevices();
  if (!devices.ok()) return WithRemedy(devices.status());
  if (compute.device >= *devices) {
    if (!must && *devices == 0 && compute.device == 0) return ChosenBackend{};
    return NoSuchDevice(*devices, compute.device);
  }
  const absl::StatusOr<CudaDevice> device = DescribeCudaDevice(compute.device);
  if (!device.ok()) return WithRemedy(device.status());
  if (device->unusable.empty()) return ChosenBackend{*device, ""};
  const std::string why = Name(*device) + " is not used: " + device->unusable;
  if (!must) return ChosenBackend{std::nullopt, why};
  return absl::FailedPreconditionError(why + kOrTheCpu);
}

std::int64_t EstimateWeightBytes(const Model& model, bool float32) {
  std::int64_t bytes = 0;
  for (const GgufTensor& tensor : model.file->tensors()) {
    // Packed codes come with wider scales than the file's: at most twice the file's bytes, for Q6_K.
    bytes += float32 ? 4 * tensor.elements() : 2 * static_cast<std::int64_t>(tensor.data.size());
  }
  return bytes;
}

PoolMemory HostPoolMemory(const ServerConfig& config, const KvShape& kv, std::int64_t weight_bytes,
                          std::int64_t free_bytes) {
  PoolMemory memory;
  memory.weight_bytes = weight_bytes;
  memory.block_bytes = kv.BytesPerToken(config.kv_dtype()) * config.kv_cache.block_tokens;
  memory.free_bytes = std::max<std::int64_t>(free_bytes, 0);
  memory.whole_bytes = memory.free_bytes;
  memory.auto_bytes = memory.free_bytes / 2;
  memory.auto_max_contexts = config.kv_cache.auto_max_contexts.value_or(kHostAutoContexts);
  return memory;
}

PoolMemory DevicePoolMemory(const ServerConfig& config, const CudaDevice& device, const CudaMemoryPlan& plan) {
  PoolMemory memory;
  memory.block_bytes = plan.block_bytes;
  memory.whole_bytes = device.total_bytes;
  memory.weight_bytes = plan.weight_bytes;
  memory.workspace_bytes = plan.workspace_bytes;
  const std::int64_t taken = plan.weight_bytes + plan.workspace_bytes;
  memory.free_bytes = std::max<std::int64_t>(device.free_bytes - taken, 0);
  memory.whole_bytes = device.total_bytes;
  memory.auto_bytes =
      std::clamp<std::int64_t>(device.total_bytes / 100 * kDeviceAutoPercent - taken, 0, memory.free_bytes);
  memory.auto_max_contexts = config.kv_cache.auto_max_contexts;
  memory.is_device = true;
  return memory;
}

absl::StatusOr<PoolMemory> FindPoolMemory(const ServerConfig& config, const Model& model, const ChosenBackend& chosen) {
  if (!chosen.device) {
    const std::int64_t weight_bytes = EstimateWeightBytes(model, config.compute.float32);
    return HostPoolMemory(config, model.config.kv_shape(), weight_bytes, AvailableMemoryBytes() - weight_bytes);
  }
  // The pool's size is what is asked for; what is swapped takes a little of the device as well.
  const std::int64_t block_bytes =
      model.config.kv_shape().BytesPerToken(config.kv_dtype()) * config.kv_cache.block_tokens;
  const KvPoolShape pool = {1, config.kv_cache.block_tokens, HostBlocks(config, block_bytes)};
  const absl::StatusOr<CudaMemoryPlan> plan = PlanCudaMemory(model, DeviceOptions(config, *chosen.device, pool));
  if (!plan.ok()) return plan.status();
  return DevicePoolMemory(config, *chosen.device, *plan);
}

absl::StatusOr<PoolPlan> PlanPool(const ServerConfig& config, std::int32_t context_tokens, const PoolMemory& memory) {
  const std::int32_t block_tokens = config.kv_cache.block_tokens;
  const std::optional<Quantity>& asked = config.kv_cache.memory;
  std::int64_t bytes = memory.auto_bytes;
  if (asked && asked->unit == QuantityUnit::kShare) {
    const std::int64_t taken = memory.is_device ? memory.weight_bytes + memory.workspace_bytes : 0;
    bytes = ShareOf(memory.whole_bytes, asked->amount) - taken;
  } else if (asked) {
    bytes = asked->amount;
  }
  std::int64_t blocks = std::min<std::int64_t>(bytes / memory.block_bytes, INT32_MAX);
  if (!asked && memory.auto_max_contexts) {
    blocks = std::min(blocks, *memory.auto_max_contexts * CeilDiv(context_tokens, block_tokens));
  }
  if (blocks < 1) {
    return asked && asked->unit == QuantityUnit::kBytes
               ? absl::InvalidArgumentError("--kv-memory or kv_cache.memory of " + FormatBytes(asked->amount) +
                                            " is less than one KV block of " + FormatBytes(memory.block_bytes) +
                                            ": give more, or smaller blocks with --block-tokens")
               : absl::ResourceExhaustedError(
                     "too little memory is free for a KV cache: " + FormatBytes(memory.free_bytes) +
                     " beside the weights; free some, or set --kv-memory or kv_cache.memory");
  }
  if (memory.is_device && blocks * memory.block_bytes > memory.free_bytes) {
    return absl::ResourceExhaustedError("--kv-memory or kv_cache.memory comes to " +
                                        FormatBytes(blocks * memory.block_bytes) + ", and " +
                                        FormatBytes(memory.free_bytes) +
                                        " are free on the device beside weights and workspace: ask for less, or free "
                                        "some (berth devices shows what fits)");
  }
  PoolPlan plan;
  plan.shape = {static_cast<std::int32_t>(blocks), block_tokens};
  plan.shape.host_blocks = HostBlocks(config, memory.block_bytes);
  plan.bytes = blocks * memory.block_bytes;
  return plan;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const ServerConfig& config, const Model& model,
                                                     const ChosenBackend& chosen, const KvPoolShape& pool,
                                                     const LoadProgress& progress) {
  if (chosen.device) {
    CudaBackendOptions options = DeviceOptions(config, *chosen.device, pool);
    options.progress = progress;
    return MakeCudaBackend(model, options);
  }
  CpuBackendOptions options;
  options.threads = config.compute.threads;
  options.compute = config.compute.float32 ? ComputeMode::kFloat32 : ComputeMode::kDefault;
  options.kv_dtype = config.kv_dtype();
  options.pool = pool;
  options.max_step_tokens = config.scheduler.max_batched_tokens;
  return MakeCpuBackend(model, options);
}

}  // namespace berth::cli
