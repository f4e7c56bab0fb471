// One reading of each quantised format, for Dequantize and for packing: 32 unsigned codes and what they are worth.
// Internal.
#pragma once

#include <cstdint>

#include "kernels/cpu/dequantize.h"

namespace berth::cpu {

inline constexpr int kCodesPerBlock = 32;

// value[i] = scale[i / 16] · (codes[i] − zero) + minimum.
struct BlockCodes {
  std::uint8_t codes[kCodesPerBlock];
  float scale[2];
  float minimum = 0.0f;
  int zero = 0;
  // Scale and minimum as stored; in Q6_K the scale is that of 256 values, and each 16 have a sub-scale.
  std::uint16_t half_scale = 0;
  std::uint16_t half_minimum = 0;
  std::int8_t sub_scales[2] = {};
};

// Block `index` (of 32 values) of a row that starts at `row`. REQUIRES: a quantised format.
BlockCodes ReadBlock(WeightFormat format, const std::byte* row, std::int64_t index);

}  // namespace berth::cpu
