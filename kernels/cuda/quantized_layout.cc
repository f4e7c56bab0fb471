#include "kernels/cuda/quantized_layout.h"

#include <cstring>

#include "kernels/cpu/block_codes.h"

namespace berth::cuda {
namespace {

using cpu::BlockCodes;

constexpr int kPlaces = 4;  // lanes that share a row

// A row of a tile.
struct RowPlace {
  int g;
  int r;
};

void StoreWord(std::byte* at, std::uint32_t word) { std::memcpy(at, &word, sizeof word); }
void StoreHalf(std::byte* at, std::uint16_t half) { std::memcpy(at, &half, sizeof half); }

int ColumnOf(int place, int pair, int element) { return pair / 2 * 16 + place * 4 + pair % 2 * 2 + element; }

// Bits `first` to `first + width - 1` of the codes of `count` pairs of a place, the pairs beside each other and their
// second elements 16 bits up.
std::uint32_t Gather(const BlockCodes& block, int place, int begin, int count, int first, int width) {
  const std::uint32_t mask = (1u << width) - 1;
  std::uint32_t word = 0;
  for (int pair = 0; pair < count; ++pair) {
    for (int element = 0; element < 2; ++element) {
      const std::uint32_t code = block.codes[ColumnOf(place, begin + pair, element)];
      word |= (code >> first & mask) << (width * pair + 16 * element);
    }
  }
  return word;
}

void PackNibbles(const BlockCodes& block, RowPlace row, std::byte* tile) {
  for (int place = 0; place < kPlaces; ++place) {
    StoreWord(tile + (4 * row.g + place) * 8 + row.r * 4, Gather(block, place, 0, 4, 0, 4));
  }
}

void PackBytes(const BlockCodes& block, RowPlace row, std::byte* tile) {
  constexpr std::uint32_t kToSigned = 0x80808080;  // block.codes are 128 more
  for (int place = 0; place < kPlaces; ++place) {
    std::byte* words = tile + (4 * row.g + place) * 16 + row.r * 8;
    for (int half = 0; half < 2; ++half) {
      StoreWord(words + half * 4, Gather(block, place, 2 * half, 2, 0, 8) ^ kToSigned);
    }
  }
}

void PackHighBits(const BlockCodes& block, RowPlace row, std::byte* high) {
  for (int place = 0; place < kPlaces; ++place) {
    const std::uint32_t word = Gather(block, place, 0, 4, 4, 2);
    std::byte* bytes = high + (4 * row.g + place) * 4 + row.r;
    bytes[0] = static_cast<std::byte>(word & 0xff);
    bytes[2] = static_cast<std::byte>(word >> 16);
  }
}

void PackBlock(QuantizedType type, const BlockCodes& block, RowPlace row, std::byte* tile) {
  const QuantizedTileLayout layout = TileLayoutOf(type);
  std::byte* scales = tile + layout.scales;
  if (type == QuantizedType::kQ8_0) {
    PackBytes(block, row, tile);
  } else {
    PackNibbles(block, row, tile);
  }
  switch (type) {
    case QuantizedType::kQ4_0:
    case QuantizedType::kQ8_0:
      StoreHalf(scales + (2 * row.g + row.r) * 2, block.half_scale);
      break;
    case QuantizedType::kQ4_1:
      StoreHalf(scales + (4 * row.g + row.r) * 2, block.half_scale);
      StoreHalf(scales + (4 * row.g + 2 + row.r) * 2, block.half_minimum);
      break;
    case QuantizedType::kQ6_K:
      PackHighBits(block, row, tile + layout.high);
      std::memcpy(scales + (2 * row.g + row.r) * 2, block.sub_scales, sizeof block.sub_scales);
      break;
  }
}

}  // namespace

void PackQuantized(QuantizedType type, const std::byte* file_rows, std::int32_t rows, std::int32_t cols,
                   std::byte* packed) {
  const cpu::WeightFormat format = FileFormatOf(type);
  const QuantizedTileLayout layout = TileLayoutOf(type);
  const std::size_t row_bytes = cpu::RowBytes(format, cols);
  const std::int32_t steps = cols / kStepCols;
  std::memset(packed, 0, QuantizedBytes(type, rows, cols));
  for (std::int32_t row = 0; row < rows; ++row) {
    const std::byte* file_row = file_rows + static_cast<std::size_t>(row) * row_bytes;
    std::byte* band = packed + row / kBandRows * BandBytes(type, cols);
    std::byte* block_scales = band + std::int64_t{steps} * kBandTiles * layout.size;
    const int tile = row % kBandRows / kTileRows;
    const RowPlace place = {row % 8, row % kTileRows / 8};
    for (std::int32_t step = 0; step < steps; ++step) {
      const BlockCodes block = cpu::ReadBlock(format, file_row, step);
      PackBlock(type, block, place, band + (std::int64_t{step} * kBandTiles + tile) * layout.size);
      if (layout.block_scales > 0 && step % layout.steps_a_block == 0) {
        std::byte* scales = block_scales + (step / layout.steps_a_block * kBandTiles + tile) * layout.block_scales;
        StoreHalf(scales + (2 * place.g + place.r) * 2, block.half_scale);
      }
    }
  }
}

}  // namespace berth::cuda
