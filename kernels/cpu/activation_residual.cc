#include "kernels/cpu/activation_residual.h"

#include "kernels/cpu/packed_layout.h"

namespace berth::cpu {

bool RoundsActivations(PackedKind kind) { return !IsFloatKind(kind); }

void ActivationResidual(const float* x, std::int32_t k, const std::byte* prepared, float* residual) {
  const auto* block = reinterpret_cast<const ActivationBlock*>(prepared);
  for (std::int32_t i = 0; i < k; i += kBlockInputs, ++block) {
    for (std::int32_t j = 0; j < kBlockInputs; ++j) {
      residual[i + j] = x[i + j] - block->scale * static_cast<float>(block->codes[j]);
    }
  }
}

}  // namespace berth::cpu
