// The transformer on the CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "berth/backend.h"
#include "kernels/cpu/cpu_level.h"
#include "model/model.h"
#include "runner/cpu/stage_clock.h"

namespace berth {

// Every approximation on (int8 activations for quantised weights) or every one off (float32 activations).
enum class ComputeMode : std::uint8_t { kDefault, kFloat32 };

struct CpuBackendOptions {
  int threads = 1;
  ComputeMode compute = ComputeMode::kDefault;
  KvDtype kv_dtype = KvDtype::kBf16;  // with kFloat32 computation: kFloat32
  KvPoolShape pool;                   // num_blocks ≥ 1; host_blocks ≥ 0; block_tokens a power of two, 1 to 256
  std::int32_t max_step_tokens = 2048;
  std::optional<cpu::CpuLevel> level;  // default: the machine's best
  StageTimes* stage_times = nullptr;   // added to by every step; not to be read while one is in flight
};

// Packs the weights (the model may be closed afterwards) and maps the KV pools; their pages cost memory only once used.
// Errors: a tensor type or shape the kernels do not serve, or too little memory, in one line that names it.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const Model& model, const CpuBackendOptions& options);

}  // namespace berth
