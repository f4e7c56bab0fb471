// The bytes that packing and prepare_row write and that the products of every level read. Internal to the kernels.
//
// A panel of an integer kind is [K / 32 blocks of codes][K / 32 blocks of scales], each part padded to 64 bytes:
//   codes   byte 4c + j of line g is column c's code at k = 4g + j of the block: the four bytes that one 32-bit lane of
//           a byte dot product takes. 8 lines of 64 bytes; 4-bit kinds put line g + 4 in the high nibbles of line g.
//   scales  kPanelU4: 16 float16 scales, 16 float16 minima, as the file has them; kPanelU4Symmetric, kPanelU8: 16
//   float16
//           scales; kPanelU8x16: 16 float32 scales of the block's first half, then 16 of its second.
// A panel of a float kind is K lines of 16 values, padded to 64 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/matmul.h"

namespace berth::cpu {

inline constexpr std::int32_t kBlockInputs = 32;  // weights, and activations, that share a scale
inline constexpr std::size_t kLineBytes = 64;

// One block of a row of int8 activations: x ≈ scale · code. One cache line.
struct ActivationBlock {
  std::int8_t codes[kBlockInputs];
  float scale;                         // max |x| / 127
  float scaled_sum;                    // scale · Σ code: what multiplies a minimum
  std::int32_t minus_8_sum;            // −8 · Σ code: takes the zero point off 4-bit codes
  std::int32_t minus_128_sum;          // −128 · Σ code: the same for 8-bit codes
  std::int32_t minus_128_half_sum[2];  // the same for each half of the block
  std::int32_t padding[2];
};
static_assert(sizeof(ActivationBlock) == kLineBytes);

// No default values here: they would make a constructor of external linkage.
struct PanelLayout {
  std::size_t block_codes_bytes;  // integer kinds: of one block
  std::size_t block_scales_bytes;
  std::size_t scales_offset;  // integer kinds: from the panel's start
  std::size_t value_bytes;    // float kinds: of one value
  std::size_t panel_bytes;
};

// `static`, not just `inline`: sources built for different instruction sets must not share a definition.
static inline std::size_t RoundUpToLine(std::size_t bytes) {
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

static inline PanelLayout LayoutOf(PackedKind kind, std::int32_t k) {
  PanelLayout layout = {};
  switch (kind) {
    case PackedKind::kPanelF32:
      layout.value_bytes = 4;
      break;
    case PackedKind::kPanelF16:
    case PackedKind::kPanelBF16:
      layout.value_bytes = 2;
      break;
    case PackedKind::kPanelU4:
      layout.block_codes_bytes = 256, layout.block_scales_bytes = 64;
      break;
    case PackedKind::kPanelU4Symmetric:
      layout.block_codes_bytes = 256, layout.block_scales_bytes = 32;
      break;
    case PackedKind::kPanelU8:
      layout.block_codes_bytes = 512, layout.block_scales_bytes = 32;
      break;
    case PackedKind::kPanelU8x16:
      layout.block_codes_bytes = 512, layout.block_scales_bytes = 128;
      break;
  }
  const std::size_t inputs = static_cast<std::size_t>(k);
  if (layout.value_bytes != 0) {
    layout.panel_bytes = RoundUpToLine(inputs * kPanelColumns * layout.value_bytes);
  } else {
    const std::size_t blocks = inputs / kBlockInputs;
    layout.scales_offset = blocks * layout.block_codes_bytes;
    layout.panel_bytes = layout.scales_offset + RoundUpToLine(blocks * layout.block_scales_bytes);
  }
  return layout;
}

static inline bool IsFloatKind(PackedKind kind) {
  return kind == PackedKind::kPanelF32 || kind == PackedKind::kPanelF16 || kind == PackedKind::kPanelBF16;
}

// Bytes of a prepared row, also the distance between rows. Always an odd number of lines: rows a power of two apart
// would all fall into one set of the first-level cache.
static inline std::size_t PreparedRowBytes(PackedKind kind, std::int32_t k) {
  const std::size_t inputs = static_cast<std::size_t>(k);
  const std::size_t bytes =
      IsFloatKind(kind) ? RoundUpToLine(inputs * sizeof(float)) : inputs / kBlockInputs * sizeof(ActivationBlock);
  return bytes / kLineBytes % 2 == 0 ? bytes + kLineBytes : bytes;
}

}  // namespace berth::cpu
