#include "kernels/cuda/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "emulation/device_array.h"
#include "kernels/cuda/bf16_data.h"

namespace berth::cuda {
namespace {

using emulation::DeviceArray;

constexpr float kEpsilon = 1e-5f;

class RmsNorm : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  RmsNorm()
      : num_tokens_(std::get<0>(GetParam())),
        hidden_size_(std::get<1>(GetParam())),
        input_(RandomBf16(Elements(), 1, 2.0f)),
        residual_(RandomBf16(Elements(), 2)),
        weight_(RandomBf16(static_cast<std::size_t>(hidden_size_), 3)) {}
  void SetUp() override { BERTH_REQUIRE_DEVICE(); }

  std::size_t Elements() const {
    return static_cast<std::size_t>(num_tokens_) * static_cast<std::size_t>(hidden_size_);
  }

  // In float64, of rows that are exact.
  void ExpectNormalized(const std::vector<double>& x, const std::vector<std::uint16_t>& output) const {
    const auto hidden = static_cast<std::size_t>(hidden_size_);
    for (std::size_t begin = 0; begin < x.size(); begin += hidden) {
      double squares = 0;
      for (std::size_t i = begin; i < begin + hidden; ++i) squares += x[i] * x[i];
      const double scale = 1 / std::sqrt(squares / hidden_size_ + kEpsilon);
      for (std::size_t i = begin; i < begin + hidden; ++i) {
        const double expected = x[i] * scale * FromBf16(weight_[i - begin]);
        ASSERT_NEAR(FromBf16(output[i]), expected, Bf16Unit(expected)) << i;
      }
    }
  }

  int num_tokens_;
  int hidden_size_;
  std::vector<std::uint16_t> input_;
  std::vector<std::uint16_t> residual_;
  std::vector<std::uint16_t> weight_;
};

TEST_P(RmsNorm, NormalizesEachRow) {
  const DeviceArray<std::uint16_t> input(input_);
  const DeviceArray<std::uint16_t> weight(weight_);
  const DeviceArray<std::uint16_t> output(input_.size());
  ASSERT_EQ(LaunchRmsNorm({.input = input.data(),
                           .residual = nullptr,
                           .weight = weight.data(),
                           .output = output.data(),
                           .num_tokens = num_tokens_,
                           .hidden_size = hidden_size_,
                           .epsilon = kEpsilon},
                          nullptr),
            cudaSuccess);
  std::vector<double> x;
  for (const std::uint16_t value : input_) x.push_back(FromBf16(value));
  ExpectNormalized(x, output.Read());
}

TEST_P(RmsNorm, AddsTheResidualAndKeepsTheSum) {
  const DeviceArray<std::uint16_t> input(input_);
  const DeviceArray<std::uint16_t> residual(residual_);
  const DeviceArray<std::uint16_t> weight(weight_);
  ASSERT_EQ(LaunchRmsNorm({.input = input.data(),
                           .residual = residual.data(),
                           .weight = weight.data(),
                           .output = input.data(),  // in place
                           .num_tokens = num_tokens_,
                           .hidden_size = hidden_size_,
                           .epsilon = kEpsilon},
                          nullptr),
            cudaSuccess);
  const std::vector<std::uint16_t> sums = residual.Read();
  std::vector<double> x;
  for (std::size_t i = 0; i < input_.size(); ++i) {
    const float sum = static_cast<float>(FromBf16(input_[i])) + static_cast<float>(FromBf16(residual_[i]));
    x.push_back(sum);
    ASSERT_EQ(sums[i], ToBf16(sum)) << i;
  }
  ExpectNormalized(x, input.Read());
}

INSTANTIATE_TEST_SUITE_P(Shapes, RmsNorm,
                         ::testing::Values(std::tuple(1, 8), std::tuple(3, 576), std::tuple(2, 1024),
                                           std::tuple(5, 264), std::tuple(1, 8192), std::tuple(2, 8264),
                                           std::tuple(1, 16384)));

TEST(RmsNormLimits, AreRefusedBeforeTheLaunch) {
  BERTH_REQUIRE_DEVICE();
  RmsNormParams params{};
  params.num_tokens = 1;
  for (const int hidden_size : {0, 12, 16392}) {
    params.hidden_size = hidden_size;
    EXPECT_EQ(LaunchRmsNorm(params, nullptr), cudaErrorInvalidValue) << hidden_size;
  }
  params.num_tokens = 0;
  params.hidden_size = 64;
  EXPECT_EQ(LaunchRmsNorm(params, nullptr), cudaSuccess);
}

}  // namespace
}  // namespace berth::cuda
