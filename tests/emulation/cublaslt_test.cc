// What the stand-in for cuBLASLt and the library on a GPU must agree on.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "emulation/cublaslt_product.h"
#include "emulation/device_array.h"
#include "kernels/cuda/bf16_data.h"

namespace berth::emulation {
namespace {

constexpr std::size_t kOutputs = 48;
constexpr std::size_t kTokens = 5;
constexpr std::size_t kInputs = 72;
constexpr std::uint64_t kWorkspaceBytes = std::uint64_t{128} << 10;

class CublasLt : public ::testing::Test {
 protected:
  CublasLt()
      : weight_(cuda::RandomBf16(kOutputs * kInputs, 1)),
        input_(cuda::RandomBf16(kTokens * kInputs, 2)),
        bias_(cuda::RandomBf16(kOutputs, 3)) {}
  void SetUp() override { BERTH_REQUIRE_DEVICE(); }

  // beta: of what the output held, its first value for all of them.
  void ExpectProduct(const std::vector<std::uint16_t>& output, bool with_bias, double added) const {
    for (std::size_t token = 0; token < kTokens; ++token) {
      for (std::size_t row = 0; row < kOutputs; ++row) {
        double sum = added + (with_bias ? cuda::FromBf16(bias_[row]) : 0);
        double size = std::abs(sum);
        for (std::size_t i = 0; i < kInputs; ++i) {
          const double term = cuda::FromBf16(weight_[row * kInputs + i]) * cuda::FromBf16(input_[token * kInputs + i]);
          sum += term;
          size += std::abs(term);
        }
        ASSERT_NEAR(cuda::FromBf16(output[token * kOutputs + row]), sum, cuda::Bf16Unit(sum) + size * 1e-5)
            << token << ", " << row;
      }
    }
  }

  std::vector<std::uint16_t> weight_;
  std::vector<std::uint16_t> input_;
  std::vector<std::uint16_t> bias_;
};

TEST_F(CublasLt, EveryAlgorithmOfTheHeuristicGivesTheProduct) {
  LtProduct product(kOutputs, kTokens, kInputs);
  product.Prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  const DeviceArray<std::uint16_t> weight(weight_);
  const DeviceArray<std::uint16_t> input(input_);
  const DeviceArray<std::byte> workspace(kWorkspaceBytes);
  const auto algorithms = product.Algorithms();
  ASSERT_FALSE(algorithms.empty());
  for (const auto& algorithm : algorithms) {
    ASSERT_EQ(algorithm.state, CUBLAS_STATUS_SUCCESS);
    ASSERT_LE(algorithm.workspaceSize, kWorkspaceBytes);
    const DeviceArray<std::uint16_t> output(kTokens * kOutputs);
    ASSERT_EQ(product.Run(weight.data(), input.data(), output.data(), &algorithm.algo, workspace.data(),
                          algorithm.workspaceSize),
              CUBLAS_STATUS_SUCCESS);
    ExpectProduct(output.Read(), false, 0);
  }
}

TEST_F(CublasLt, AddsABiasAndWhatWasThere) {
  LtProduct product(kOutputs, kTokens, kInputs);
  const DeviceArray<std::uint16_t> weight(weight_);
  const DeviceArray<std::uint16_t> input(input_);
  const DeviceArray<std::uint16_t> bias(bias_);
  product.Describe(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  product.Describe(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias.data()));
  const auto algorithms = product.Algorithms();
  ASSERT_FALSE(algorithms.empty());
  const DeviceArray<std::uint16_t> output(std::vector<std::uint16_t>(kTokens * kOutputs, cuda::ToBf16(3.0f)));
  ASSERT_EQ(product.Run(weight.data(), input.data(), output.data(), &algorithms[0].algo, nullptr, 0, nullptr, 1.0f),
            CUBLAS_STATUS_SUCCESS);
  ExpectProduct(output.Read(), true, 3);
}

}  // namespace
}  // namespace berth::emulation
