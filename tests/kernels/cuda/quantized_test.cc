#include "kernels/cuda/quantized.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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

struct ProductShape {
  QuantizedType type;
  int rows;
  int cols;
};

std::string Name(const ProductShape& shape) {
  return std::string(test::FormatName(FileFormatOf(shape.type))) + "_" + std::to_string(shape.rows) + "x" +
         std::to_string(shape.cols);
}

void PrintTo(const ProductShape& shape, std::ostream* out) { *out << Name(shape); }

class Quantized : public ::testing::TestWithParam<ProductShape> {
 protected:
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

  std::vector<float> Multiply(const std::vector<std::uint16_t>& input) const {
    const std::size_t num_tokens = input.size() / Size(GetParam().cols);
    const DeviceArray<std::uint16_t> device_input(input);
    const DeviceArray<float> output(num_tokens * Size(GetParam().rows));
    EXPECT_EQ(LaunchQuantizedMatmul({.matrix = Matrix(),
                                     .input = device_input.data(),
                                     .output = output.data(),
                                     .output_stride = GetParam().rows,
                                     .num_tokens = static_cast<std::int32_t>(num_tokens),
                                     .output_is_float = true},
                                    nullptr),
              cudaSuccess);
    return output.Read();
  }

  test::StoredWeights weights_;
  std::unique_ptr<DeviceArray<std::byte>> packed_;
};

TEST_P(Quantized, ATokenDoesNotDependOnItsNeighbours) {
  const std::size_t cols = Size(GetParam().cols);
  const std::size_t rows = Size(GetParam().rows);
  const std::vector<std::uint16_t> input = Input(11);
  const std::vector<float> together = Multiply(input);
  std::vector<std::uint16_t> few(input.end() - static_cast<std::ptrdiff_t>(3 * cols), input.end());
  std::fill_n(few.begin(), cols, std::uint16_t{0x7fc0});  // NaN
  const std::vector<float> beside_nan = Multiply(few);
  EXPECT_TRUE(std::equal(beside_nan.begin() + static_cast<std::ptrdiff_t>(rows), beside_nan.end(),
                         together.end() - static_cast<std::ptrdiff_t>(2 * rows)));
  for (std::size_t row = 0; row < rows; ++row) ASSERT_TRUE(std::isnan(beside_nan[row])) << row;
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Quantized,
    ::testing::Values(ProductShape{QuantizedType::kQ4_0, 40, 576}, ProductShape{QuantizedType::kQ4_0, 1, 32},
                      ProductShape{QuantizedType::kQ4_1, 40, 576}, ProductShape{QuantizedType::kQ4_1, 33, 64},
                      ProductShape{QuantizedType::kQ8_0, 40, 576}, ProductShape{QuantizedType::kQ8_0, 16, 2112},
                      ProductShape{QuantizedType::kQ6_K, 40, 768}, ProductShape{QuantizedType::kQ6_K, 7, 256}),
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
