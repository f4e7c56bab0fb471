#include "kernels/cuda/quantized_layout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/half.h"
#include "kernels/weight_data.h"

namespace berth::cuda {
namespace {

constexpr QuantizedType kTypes[] = {QuantizedType::kQ4_0, QuantizedType::kQ4_1, QuantizedType::kQ8_0,
                                    QuantizedType::kQ6_K};

// Reads a packed matrix as the header describes it, value by value.
class PackedReader {
 public:
  PackedReader(QuantizedType type, const std::vector<std::byte>& packed, int cols)
      : type_(type), packed_(packed), cols_(cols), layout_(TileLayoutOf(type)) {}

  float At(int row, int col) const {
    const int steps = cols_ / kStepCols;
    const int step = col / kStepCols;
    const int m = row % kBandRows / kTileRows;
    const std::int64_t band = row / kBandRows * BandBytes(type_, cols_);
    const std::int64_t tile = band + (step * kBandTiles + m) * layout_.size;
    const int g = row % 8;
    const int r = row % 16 / 8;
    const int h = col % 32 / 16;
    const int t = col % 16 / 4;
    const int pair = 2 * h + col % 4 / 2;
    const int e = col % 2;
    const int lane = 4 * g + t;
    const std::int64_t scales = tile + layout_.scales;
    switch (type_) {
      case QuantizedType::kQ4_0:
        return Half(scales + (2 * g + r) * 2) * static_cast<float>(Nibble(tile, lane, r, pair, e) - 8);
      case QuantizedType::kQ4_1:
        return Half(scales + (4 * g + r) * 2) * static_cast<float>(Nibble(tile, lane, r, pair, e)) +
               Half(scales + (4 * g + 2 + r) * 2);
      case QuantizedType::kQ8_0: {
        const std::uint32_t word = Word(tile + ((lane * 2 + r) * 2 + h) * 4);
        const auto code = static_cast<std::int8_t>(word >> (8 * (pair % 2) + 16 * e) & 0xff);
        return Half(scales + (2 * g + r) * 2) * static_cast<float>(code);
      }
      case QuantizedType::kQ6_K: {
        const int high = static_cast<int>(Word(tile + layout_.high + lane * 4) >> (8 * r + 2 * pair + 16 * e) & 3);
        const std::int64_t blocks = band + std::int64_t{steps} * kBandTiles * layout_.size;
        const float scale =
            Half(blocks + (step / layout_.steps_a_block * kBandTiles + m) * layout_.block_scales + (2 * g + r) * 2);
        const auto sub_scale = static_cast<std::int8_t>(Byte(scales + (2 * g + r) * 2 + h));
        return scale * static_cast<float>(sub_scale) *
               static_cast<float>(Nibble(tile, lane, r, pair, e) + 16 * high - 32);
      }
    }
    return 0.0f;
  }

 private:
  int Nibble(std::int64_t tile, int lane, int r, int pair, int e) const {
    return static_cast<int>(Word(tile + (lane * 2 + r) * 4) >> (4 * pair + 16 * e) & 15);
  }
  std::uint8_t Byte(std::int64_t at) const {
    return std::to_integer<std::uint8_t>(packed_.at(static_cast<std::size_t>(at)));
  }
  std::uint32_t Word(std::int64_t at) const {
    std::uint32_t word = 0;
    for (int i = 3; i >= 0; --i) word = word << 8 | Byte(at + i);
    return word;
  }
  float Half(std::int64_t at) const {
    return cpu::HalfToFloat(static_cast<std::uint16_t>(Byte(at) | Byte(at + 1) << 8));
  }

  QuantizedType type_;
  const std::vector<std::byte>& packed_;
  int cols_;
  QuantizedTileLayout layout_;
};

std::vector<std::byte> Packed(QuantizedType type, const test::StoredWeights& weights) {
  std::vector<std::byte> packed(QuantizedBytes(type, weights.n, weights.k), std::byte{0xa5});
  PackQuantized(type, weights.bytes.data(), weights.n, weights.k, packed.data());
  return packed;
}

TEST(QuantizedLayout, PackingLosesNothing) {
  std::mt19937 rng(7);
  for (const QuantizedType type : kTypes) {
    for (const int rows : {1, 32, 75}) {
      const int cols = type == QuantizedType::kQ6_K ? 512 : 96;
      const test::StoredWeights weights =
          test::RandomWeights(FileFormatOf(type), rows, cols, test::Scales::kAnyFinite, rng);
      std::vector<float> expected(weights.values.size());
      cpu::Dequantize(weights.format, weights.bytes.data(), static_cast<std::int64_t>(expected.size()),
                      expected.data());
      const std::vector<std::byte> packed = Packed(type, weights);
      const PackedReader reader(type, packed, cols);
      for (int row = 0; row < rows; ++row) {
        for (int col = 0; col < cols; ++col) {
          ASSERT_EQ(reader.At(row, col), expected[static_cast<std::size_t>(row * cols + col)])
              << test::FormatName(weights.format) << " row " << row << ", column " << col;
        }
      }
    }
  }
}

TEST(QuantizedLayout, RowsThatFillUpTheLastBandAreZeros) {
  std::mt19937 rng(8);
  for (const QuantizedType type : kTypes) {
    const test::StoredWeights weights = test::RandomWeights(FileFormatOf(type), 33, 256, test::Scales::kTypical, rng);
    const std::vector<std::byte> packed = Packed(type, weights);
    const PackedReader reader(type, packed, 256);
    for (int row = 33; row < 2 * kBandRows; ++row) {
      for (int col = 0; col < 256; ++col) ASSERT_EQ(reader.At(row, col), 0.0f) << row << ", " << col;
    }
  }
}

TEST(QuantizedLayout, RangesOfRowsMakeTheWhole) {
  std::mt19937 rng(9);
  for (const QuantizedType type : kTypes) {
    const test::StoredWeights weights = test::RandomWeights(FileFormatOf(type), 150, 256, test::Scales::kTypical, rng);
    const std::vector<std::byte> whole = Packed(type, weights);
    std::vector<std::byte> parts(whole.size());
    const std::size_t row_bytes = cpu::RowBytes(weights.format, weights.k);
    for (const auto& [first, count] : {std::pair{96, 54}, {0, 32}, {32, 64}}) {
      PackQuantized(type, weights.bytes.data() + static_cast<std::size_t>(first) * row_bytes, count, weights.k,
                    parts.data() + QuantizedBytes(type, first, weights.k));
    }
    EXPECT_EQ(parts, whole) << test::FormatName(weights.format);
  }
}

TEST(QuantizedLayout, TakesTheFilesBytes) {
  for (const QuantizedType type : kTypes) {
    const cpu::WeightFormat format = FileFormatOf(type);
    EXPECT_EQ(QuantizedBytes(type, 64, 4096), 64 * cpu::RowBytes(format, 4096)) << test::FormatName(format);
    EXPECT_EQ(QuantizedBytes(type, 65, 4096), 96 * cpu::RowBytes(format, 4096)) << test::FormatName(format);
  }
}

}  // namespace
}  // namespace berth::cuda
