#include "kernels/cpu/attention.h"

#include "kernels/cpu/levels.h"

namespace berth::cpu {
namespace {

constexpr std::int32_t kVectorFloats = 16;

}  // namespace

std::int32_t AttentionStride(std::int32_t head_dim) {
  return (head_dim + kVectorFloats - 1) / kVectorFloats * kVectorFloats;
}

// As attention_impl.h divides it: queries, scores, scales of keys and values, transposed keys, values.
std::size_t AttentionScratchFloats(std::int32_t head_dim) {
  const auto stride = static_cast<std::size_t>(AttentionStride(head_dim));
  return kAttentionMaxRows * (stride + kAttentionChunkTokens) +
         2 * (kAttentionChunkTokens * stride + kAttentionChunkTokens + kVectorFloats);
}

const AttentionKernels& GetAttentionKernels(CpuLevel level) {
#if defined(__x86_64__)
  if (level == CpuLevel::kAvx512Vnni) return *AttentionKernelsAvx512();
  if (level == CpuLevel::kAvx2) return *AttentionKernelsAvx2();
#endif
  static_cast<void>(level);
  return *AttentionKernelsScalar();
}

}  // namespace berth::cpu
