// How a quantised matrix lies in device memory. Blocks of model files have 18, 20, 34 or 210 bytes, which no wide load
// can read; here the same codes and scales come in the order in which the lanes of a warp use them, in pieces of 16
// bytes. Nothing is rounded or lost.
//
// A tile has 16 rows and 32 columns, and is two fragments of the tensor cores (gpu.h, MmaBf16): lane 4g + t of a warp
// has the rows g and g + 8 (r = 0, 1) and in each row the columns 16h + 4t + 0 .. 3 for h = 0, 1, as pairs of
// neighbours: pair i = 2h + p has the columns 16h + 4t + 2p + e for e = 0, 1. A tile is
//   codes    kQ4_0, kQ4_1, and of kQ6_K the lower four bits: a word for each lane and r, with the code of pair i, e at
//            bit 4i + 16e
//            kQ8_0: words for each lane, r and h, with the code of pair 2h + p, e in two's complement at bit 8p + 16e
//   high     kQ6_K, the upper two bits of codes: a word for each lane, with those of r and pair i, e at bit
//            8r + 2i + 16e
//   scales   float16 [g][r]; kQ4_1: [g][scale, minimum][r]; kQ6_K: bytes, the sub-scales of each half's columns
//   [g][r][h]
// Rows come in bands of two tiles, columns in steps of one, and rows that fill up the last band are zeros. A band is
// contiguous: for each step its two tiles, and behind them, kQ6_K, for each block of 256 columns and each of the two
// tiles the float16 scales [g][r].
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/dequantize.h"
#include "kernels/params/quantized.h"

namespace berth::cuda {

inline constexpr std::int32_t kTileRows = 16;
inline constexpr std::int32_t kBandTiles = 2;
inline constexpr std::int32_t kBandRows = kBandTiles * kTileRows;
inline constexpr std::int32_t kStepCols = 32;

// In bytes, of a tile.
struct QuantizedTileLayout {
  std::int32_t high;           // where the upper bits begin, and the codes end
  std::int32_t scales;         // where the scales begin
  std::int32_t size;           // of all
  std::int32_t block_scales;   // for each block of columns, or 0
  std::int32_t steps_a_block;  // or 1
};

constexpr QuantizedTileLayout TileLayoutOf(QuantizedType type) {
  switch (type) {
    case QuantizedType::kQ4_0:
      return {256, 256, 256 + 32, 0, 1};
    case QuantizedType::kQ4_1:
      return {256, 256, 256 + 64, 0, 1};
    case QuantizedType::kQ8_0:
      return {512, 512, 512 + 32, 0, 1};
    case QuantizedType::kQ6_K:
      return {256, 256 + 128, 256 + 128 + 32, 32, 8};
  }
  return {};
}

constexpr cpu::WeightFormat FileFormatOf(QuantizedType type) {
  switch (type) {
    case QuantizedType::kQ4_0:
      return cpu::WeightFormat::kQ4_0;
    case QuantizedType::kQ4_1:
      return cpu::WeightFormat::kQ4_1;
    case QuantizedType::kQ8_0:
      return cpu::WeightFormat::kQ8_0;
    case QuantizedType::kQ6_K:
      return cpu::WeightFormat::kQ6_K;
  }
  return {};
}

constexpr std::int64_t BandBytes(QuantizedType type, std::int32_t cols) {
  const QuantizedTileLayout layout = TileLayoutOf(type);
  const std::int64_t steps = cols / kStepCols;
  return kBandTiles * (steps * layout.size + steps / layout.steps_a_block * layout.block_scales);
}

// What a matrix takes on the device. REQUIRES: cols as QuantizedMatrix documents it.
constexpr std::size_t QuantizedBytes(QuantizedType type, std::int32_t rows, std::int32_t cols) {
  const std::int64_t bands = (std::int64_t{rows} + kBandRows - 1) / kBandRows;
  return static_cast<std::size_t>(bands * BandBytes(type, cols));
}

// Packs `rows` rows of a file (blocks of FileFormatOf(type), any alignment) to the QuantizedBytes(type, rows, cols) at
// `packed`. A matrix may be packed in ranges, by several threads or through a small buffer: rows from `first` on, a
// multiple of kBandRows, go QuantizedBytes(type, first, cols) behind its beginning.
void PackQuantized(QuantizedType type, const std::byte* file_rows, std::int32_t rows, std::int32_t cols,
                   std::byte* packed);

}  // namespace berth::cuda
