#include "kernels/cuda/quantized.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "emulation/device_array.h"
#include "kernels/cuda/bf16_data.h"
#include "kernels/cuda/quantized_layout.h"
#include "kernels/weight_data.h"

namespace berth::cuda {
namespace {

using emulation::DeviceArray;

std::size_t Size(std::int64_t size) { return static_cast<std::size_t>(size); }

struct Shape {
  QuantizedType type;
  int rows;
  int cols;
};

std::string Name(const Shape& shape) {
  return std::string(test::FormatName(FileFormatOf(shape.type))) + "_" + std::to_string(shape.rows) + "x" +
         std::to_string(shape.cols);
}

void PrintTo(const Shape& shape, std::ostream* out) { *out << Name(shape); }

class Quantized : public ::testing::TestWithParam<Shape> {
 protected:
  static constexpr std::size_t kGuard = 3;  // elements behind each token's output
  static constexpr std::uint16_t kGuardBits = 0x1234;

  void SetUp() override {
    BERTH_REQUIRE_DEVICE();
    std::mt19937 rng(3);
    const auto& [type, rows, cols] = GetParam();
    weights_ = test::RandomWeights(FileFormatOf(type), rows, cols, test::Scales::kTypical, rng);
    std::vector<std::byte> packed(QuantizedBytes(type, rows, cols));
    PackQuantized(type, weights_.bytes.data(), rows, cols, packed.data());
    packed_ = std::make_unique<DeviceArray<std::byte>>(packed);
  }

  QuantizedMatrix Matrix() const {
    const auto& [type, rows, cols] = GetParam();
    return {.data = packed_->data(), .rows = rows, .cols = cols, .type = type};
  }

  std::vector<std::uint16_t> Input(int num_tokens) const {
    return RandomBf16(Size(num_tokens) * Size(GetParam().cols), 4);
  }

  // Tokens one after the other, without what lies behind them.
  template <typename Element>
  std::vector<Element> Multiply(const std::vector<std::uint16_t>& input) const {
    const std::size_t num_tokens = input.size() / Size(GetParam().cols);
    const std::size_t rows = Size(GetParam().rows);
    const std::size_t stride = rows + kGuard;
    const DeviceArray<std::uint16_t> device_input(input);
    const DeviceArray<Element> output(std::vector<Element>(num_tokens * stride, Element{kGuardBits}));
    EXPECT_EQ(LaunchQuantizedMatmul({.matrix = Matrix(),
                                     .input = device_input.data(),
                                     .output = output.data(),
                                     .output_stride = static_cast<std::int64_t>(stride),
                                     .num_tokens = static_cast<std::int32_t>(num_tokens),
                                     .output_is_float = sizeof(Element) == sizeof(float)},
                                    nullptr),
              cudaSuccess);
    const std::vector<Element> stored = output.Read();
    std::vector<Element> results;
    for (std::size_t i = 0; i < stored.size(); ++i) {
      if (i % stride < rows) {
        results.push_back(stored[i]);
      } else {
        EXPECT_EQ(stored[i], Element{kGuardBits}) << "behind token " << i / stride;
      }
    }
    return results;
  }

  // Of a product in float32 with weights that are not rounded: sums of 32 values by a tensor core, one for each step of
  // a warp, 16 for the warps.
  double Bound(double magnitude) const { return (GetParam().cols / 32 + 32) * magnitude * 0x1p-23; }

  struct Expected {
    double sum = 0;
    double magnitude = 0;
  };
  Expected Product(const std::vector<std::uint16_t>& input, std::size_t token, std::size_t row) const {
    const std::size_t cols = Size(GetParam().cols);
    Expected expected;
    for (std::size_t col = 0; col < cols; ++col) {
      const double x = FromBf16(input[token * cols + col]);
      expected.sum += x * weights_.values[row * cols + col];
      expected.magnitude += std::abs(x) * weights_.magnitudes[row * cols + col];
    }
    return expected;
  }

  template <typename Element>
  void ExpectProduct(int num_tokens) const {
    const std::vector<std::uint16_t> input = Input(num_tokens);
    const std::vector<Element> output = Multiply<Element>(input);
    const std::size_t rows = Size(GetParam().rows);
    ASSERT_EQ(output.size(), Size(num_tokens) * rows);
    for (std::size_t i = 0; i < output.size(); ++i) {
      const Expected expected = Product(input, i / rows, i % rows);
      double value;
      double bound = Bound(expected.magnitude);
      if constexpr (sizeof(Element) == sizeof(float)) {
        value = output[i];
      } else {
        value = FromBf16(output[i]);
        bound += Bf16Unit(expected.sum);
      }
      ASSERT_NEAR(value, expected.sum, bound) << "token " << i / rows << ", row " << i % rows;
    }
  }

  test::StoredWeights weights_;
  std::unique_ptr<DeviceArray<std::byte>> packed_;
};

TEST_P(Quantized, DequantizedIsTheFormulaRoundedToBfloat16) {
  const DeviceArray<std::uint16_t> output(weights_.values.size());
  ASSERT_EQ(LaunchDequantize({.matrix = Matrix(), .output = output.data()}, nullptr), cudaSuccess);
  std::vector<float> expected(weights_.values.size());
  cpu::Dequantize(weights_.format, weights_.bytes.data(), static_cast<std::int64_t>(expected.size()), expected.data());
  const std::vector<std::uint16_t> results = output.Read();
  for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(results[i], ToBf16(expected[i])) << i;
}

TEST_P(Quantized, OneTokensProductIsWithinTheBound) { ExpectProduct<float>(1); }
TEST_P(Quantized, SomeTokensProductsAreWithinTheBound) { ExpectProduct<std::uint16_t>(5); }
TEST_P(Quantized, TheMostTokensProductsAreWithinTheBound) { ExpectProduct<float>(kQuantizedMatmulTokens); }

TEST_P(Quantized, ATokenDoesNotDependOnItsNeighbours) {
  const std::size_t cols = Size(GetParam().cols);
  const std::size_t rows = Size(GetParam().rows);
  const std::vector<std::uint16_t> input = Input(11);
  const std::vector<float> together = Multiply<float>(input);
  std::vector<std::uint16_t> few(input.end() - static_cast<std::ptrdiff_t>(3 * cols), input.end());
  std::fill_n(few.begin(), cols, std::uint16_t{0x7fc0});  // NaN
  const std::vector<float> beside_nan = Multiply<float>(few);
  EXPECT_TRUE(std::equal(beside_nan.begin() + static_cast<std::ptrdiff_t>(rows), beside_nan.end(),
                         together.end() - static_cast<std::ptrdiff_t>(2 * rows)));
  for (std::size_t row = 0; row < rows; ++row) ASSERT_TRUE(std::isnan(beside_nan[row])) << row;
}

INSTANTIATE_TEST_SUITE_P(Shapes, Quantized,
                         ::testing::Values(Shape{QuantizedType::kQ4_0, 40, 576}, Shape{QuantizedType::kQ4_0, 1, 32},
                                           Shape{QuantizedType::kQ4_1, 40, 576}, Shape{QuantizedType::kQ4_1, 33, 64},
                                           Shape{QuantizedType::kQ8_0, 40, 576}, Shape{QuantizedType::kQ8_0, 16, 2112},
                                           Shape{QuantizedType::kQ6_K, 40, 768}, Shape{QuantizedType::kQ6_K, 7, 256}),
                         [](const auto& row) { return Name(row.param); });

TEST(QuantizedLimits, AreRefusedBeforeTheLaunch) {
  BERTH_REQUIRE_DEVICE();
  QuantizedMatmulParams good{};
  good.matrix = {.data = nullptr, .rows = 8, .cols = 256, .type = QuantizedType::kQ6_K};
  EXPECT_EQ(LaunchQuantizedMatmul(good, nullptr), cudaSuccess) << "no token, no work";
  good.num_tokens = 1;
  QuantizedMatmulParams bad = good;
  bad.num_tokens = kQuantizedMatmulTokens + 1;
  EXPECT_EQ(LaunchQuantizedMatmul(bad, nullptr), cudaErrorInvalidValue);
  for (const auto& [rows, cols, type] : {std::tuple{8, 96, QuantizedType::kQ6_K},
                                         {8, 48, QuantizedType::kQ4_0},
                                         {0, 256, QuantizedType::kQ4_0},
                                         {8, 65536 * 256, QuantizedType::kQ4_0},
                                         {8, 0, QuantizedType::kQ8_0}}) {
    bad = good;
    bad.matrix = {.data = nullptr, .rows = rows, .cols = cols, .type = type};
    EXPECT_EQ(LaunchQuantizedMatmul(bad, nullptr), cudaErrorInvalidValue);
    EXPECT_EQ(LaunchDequantize({.matrix = bad.matrix, .output = nullptr}, nullptr), cudaErrorInvalidValue);
  }
}

}  // namespace
}  // namespace berth::cuda
