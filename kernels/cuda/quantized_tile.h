// A lane's part of a tile of quantised weights (quantized_layout.h). Device code of quantized.cu.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/quantized_layout.h"
#include "kernels/gpu.h"

namespace berth::cuda {

template <QuantizedType kType>
inline constexpr QuantizedTileLayout kTileLayout = TileLayoutOf(kType);

// a - b of two bfloat16 each.
__device__ inline std::uint32_t SubtractBf16(const std::uint32_t& a, const std::uint32_t& b) {
  const __nv_bfloat162 difference =
      __hsub2(reinterpret_cast<const __nv_bfloat162&>(a), reinterpret_cast<const __nv_bfloat162&>(b));
  return reinterpret_cast<const std::uint32_t&>(difference);
}

// Of a register that holds two float16.
__device__ inline float HalfOf(std::uint32_t pair, int index) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(pair >> (16 * index) & 0xffff)));
}

// value = scale · code + minimum, for the rows g and g + 8 (r = 0, 1) and the lane's pairs of columns.
template <QuantizedType kType>
class LaneTile {
 public:
  static constexpr int kPairs = 4;
  static constexpr int kGroups = kType == QuantizedType::kQ6_K ? 2 : 1;  // halves of the columns with their own scale

  // tile: in shared or global memory, as block_scales, those of the tile's block of columns (kQ6_K).
  __device__ LaneTile(const std::byte* tile, [[maybe_unused]] const std::byte* block_scales, unsigned lane) {
    const std::byte* scales = tile + kTileLayout<kType>.scales;
    if constexpr (kType == QuantizedType::kQ8_0) {
      const uint4 words = reinterpret_cast<const uint4*>(tile)[lane];
      words_[0] = words.x;
      words_[1] = words.y;
      words_[2] = words.z;
      words_[3] = words.w;
    } else {
      const uint2 words = reinterpret_cast<const uint2*>(tile)[lane];
      words_[0] = words.x;
      words_[1] = words.y;
    }
    if constexpr (kType == QuantizedType::kQ4_1) {
      scales_ = reinterpret_cast<const std::uint32_t*>(scales)[lane / 4 * 2];
      extra_ = reinterpret_cast<const std::uint32_t*>(scales)[lane / 4 * 2 + 1];
    } else {
      scales_ = reinterpret_cast<const std::uint32_t*>(scales)[lane / 4];
    }
    if constexpr (kType == QuantizedType::kQ6_K) {
      high_ = reinterpret_cast<const std::uint32_t*>(tile + kTileLayout<kType>.high)[lane];
      extra_ = reinterpret_cast<const std::uint32_t*>(block_scales)[lane / 4];
    }
  }

  // The codes less what stands for zero, as two bfloat16: exact. A bfloat16 of 0x4300 | n is 128 + n for n < 128, so
  // seven bits become a number by one logical operation, and what was added comes off by one subtraction.
  __device__ std::uint32_t Codes(int r, int pair) const {
    constexpr std::uint32_t kBias = 0x43004300;
    if constexpr (kType == QuantizedType::kQ8_0) {
      // Where the sign bit is set, 256 comes off.
      const std::uint32_t bytes = words_[2 * r + pair / 2] >> (8 * (pair % 2));
      return SubtractBf16(gpu::MaskOr(bytes, 0x007f007f, kBias), gpu::MaskOr(bytes, 0x00800080, kBias));
    }
    const std::uint32_t low = gpu::MaskOr(words_[r] >> (4 * pair), 0x000f000f, kBias);
    if constexpr (kType == QuantizedType::kQ4_0) return SubtractBf16(low, kBias | 0x00080008);
    if constexpr (kType == QuantizedType::kQ4_1) return SubtractBf16(low, kBias);
    const int shift = 8 * r + 2 * pair - 4;
    const std::uint32_t high = shift < 0 ? high_ << -shift : high_ >> shift;
    return SubtractBf16(gpu::MaskOr(high, 0x00300030, low), kBias | 0x00200020);
  }

  __device__ float Scale(int r, int group) const {
    if constexpr (kType == QuantizedType::kQ6_K) {
      const auto sub_scale = static_cast<signed char>(scales_ >> (16 * r + 8 * group) & 0xff);
      return HalfOf(extra_, r) * static_cast<float>(sub_scale);
    }
    return HalfOf(scales_, r);
  }
  // kQ4_1
  __device__ float Minimum(int r) const { return HalfOf(extra_, r); }

  __device__ float Value(int r, int group, float code) const {
    if constexpr (kType == QuantizedType::kQ4_1) return fmaf(Scale(r, group), code, Minimum(r));
    return Scale(r, group) * code;
  }

 private:
  std::uint32_t words_[kTileLayout<kType>.high / 128];
  std::uint32_t high_;    // kQ6_K
  std::uint32_t scales_;  // as stored
  std::uint32_t extra_;   // kQ4_1: minima; kQ6_K: scales of the block
};

}  // namespace berth::cuda
