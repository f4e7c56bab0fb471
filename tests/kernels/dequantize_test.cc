#include "kernels/cpu/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/half.h"
#include "kernels/weight_data.h"

namespace berth::cpu {
namespace {

using test::RandomWeights;
using test::Scales;
using test::StoredWeights;

std::vector<float> Dequantized(const StoredWeights& weights) {
  std::vector<float> values(weights.values.size());
  Dequantize(weights.format, weights.bytes.data(), static_cast<std::int64_t>(values.size()), values.data());
  return values;
}

void ExpectFormulaRoundedOnce(const StoredWeights& weights) {
  const std::vector<float> values = Dequantized(weights);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(values[i], static_cast<float>(weights.values[i])) << test::FormatName(weights.format) << " value " << i;
  }
}

TEST(Dequantize, EveryFormatEqualsItsFormulaOnTypicalBlocks) {
  std::mt19937 rng(1);
  for (WeightFormat format : test::kAllFormats) {
    ExpectFormulaRoundedOnce(RandomWeights(format, 64, 1024, Scales::kTypical, rng));
  }
}

TEST(Dequantize, EveryFormatEqualsItsFormulaForAnyFiniteScale) {
  std::mt19937 rng(2);
  for (WeightFormat format : test::kAllFormats) {
    ExpectFormulaRoundedOnce(RandomWeights(format, 256, 1024, Scales::kAnyFinite, rng));
  }
}

TEST(Dequantize, EveryHalfPrecisionPatternIsExact) {
  for (unsigned bits = 0; bits <= 0xFFFF; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = HalfToFloat(half);
    const double expected = test::HalfValue(half);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(static_cast<float>(expected)))
          << bits;
    }
  }
}

TEST(Dequantize, ABlockWrittenByHandHasTheValuesOfTheFormat) {
  // Q5_0: d = 0.5; code bytes 0x21: low nibble 1 for values 0..15, high nibble 2 for 16..31; fifth bits of 0 and 31
  // set.
  std::byte q5[22] = {};
  q5[1] = std::byte{0x38};
  q5[2] = std::byte{0x01};
  q5[5] = std::byte{0x80};
  std::memset(q5 + 6, 0x21, 16);
  float values[32];
  Dequantize(WeightFormat::kQ5_0, q5, 32, values);
  EXPECT_EQ(values[0], 0.5f * (17 - 16));
  EXPECT_EQ(values[1], 0.5f * (1 - 16));
  EXPECT_EQ(values[16], 0.5f * (2 - 16));
  EXPECT_EQ(values[31], 0.5f * (18 - 16));

  // Q4_1: d = -2, m = 2^-24, the smallest subnormal.
  std::byte q4[20] = {};
  q4[1] = std::byte{0xC0};
  q4[2] = std::byte{0x01};
  q4[4] = std::byte{0xF1};
  Dequantize(WeightFormat::kQ4_1, q4, 32, values);
  EXPECT_EQ(values[0], -2.0f + 0x1p-24f);
  EXPECT_EQ(values[1], 0x1p-24f);
  EXPECT_EQ(values[16], -30.0f);
}

TEST(Dequantize, RowsNeedNoAlignment) {
  std::mt19937 rng(3);
  for (WeightFormat format : test::kAllFormats) {
    const StoredWeights weights = RandomWeights(format, 1, 512, Scales::kTypical, rng);
    std::vector<std::byte> shifted(weights.bytes.size() + 1);
    std::memcpy(shifted.data() + 1, weights.bytes.data(), weights.bytes.size());
    std::vector<float> values(512);
    Dequantize(format, shifted.data() + 1, 512, values.data());
    EXPECT_EQ(values, Dequantized(weights)) << test::FormatName(format);
  }
}

TEST(Dequantize, WritesExactlyTheValuesAskedFor) {
  std::mt19937 rng(4);
  for (WeightFormat format : test::kAllFormats) {
    const StoredWeights weights = RandomWeights(format, 1, 512, Scales::kTypical, rng);
    std::vector<float> values(512, 77.0f);
    Dequantize(format, weights.bytes.data(), 256, values.data());
    EXPECT_EQ(values[255], static_cast<float>(weights.values[255])) << test::FormatName(format);
    EXPECT_EQ(values[256], 77.0f) << test::FormatName(format);
  }
}

}  // namespace
}  // namespace berth::cpu
