// Which backend runs the model, what memory its KV pool may have, and the backend itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "berth/backend.h"
#include "berth/kv.h"
#include "config/server_config.h"
#include "model/model.h"
#include "runner/cuda/cuda_backend.h"

namespace berth::cli {

struct ChosenBackend {
  std::optional<CudaDevice> device;  // absent: the CPU
  std::string note;                  // why a device that is there is not used; mostly empty
};
// As compute.backend and compute.device say. Errors say what to change: a device that is not there or cannot be used, a
// driver that fails, float32, which is the CPU's alone.
absl::StatusOr<ChosenBackend> ChooseBackend(const ServerConfig& config);

// Memory that the model's weights take once they are packed for running on the CPU, roughly and rather too much than
// too little.
std::int64_t EstimateWeightBytes(const Model& model, bool float32);

// What there is for a KV pool.
struct PoolMemory {
  std::int64_t block_bytes = 0;
  std::int64_t free_bytes = 0;   // beside the weights
  std::int64_t whole_bytes = 0;  // what a share is of
  std::int64_t weight_bytes = 0;
  std::int64_t workspace_bytes = 0;  // of a device; a share is what is left beside both
  std::int64_t auto_bytes = 0;
  std::optional<std::int32_t> auto_max_contexts;
  bool is_device = false;  // no more than is free can be had
};
// `free_bytes`: beside the weights.
PoolMemory HostPoolMemory(const ServerConfig& config, const KvShape& kv, std::int64_t weight_bytes,
                          std::int64_t free_bytes);
PoolMemory DevicePoolMemory(const ServerConfig& config, const CudaDevice& device, const CudaMemoryPlan& plan);
// Of the chosen backend, on this machine now.
absl::StatusOr<PoolMemory> FindPoolMemory(const ServerConfig& config, const Model& model, const ChosenBackend& chosen);

// How large the KV pool becomes.
struct PoolPlan {
  KvPoolShape shape;
  std::int64_t bytes = 0;
};
// Errors name the flag to change.
absl::StatusOr<PoolPlan> PlanPool(const ServerConfig& config, std::int32_t context_tokens, const PoolMemory& memory);

// Told as weights reach a device: bytes so far, and all of them.
using LoadProgress = std::function<void(std::int64_t done, std::int64_t total)>;

// REQUIRES: `config` and `pool` as decided for what was chosen; model.config.context_tokens is the context served.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const ServerConfig& config, const Model& model,
                                                     const ChosenBackend& chosen, const KvPoolShape& pool,
                                                     const LoadProgress& progress);

}  // namespace berth::cli
