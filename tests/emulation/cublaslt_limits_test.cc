// What the stand-in for cuBLASLt refuses, and when it computes.
#include <gtest/gtest.h>

#include "emulation/cublaslt_product.h"
#include "emulation/device_array.h"
#include "emulation/fixture.h"

namespace berth::emulation {
namespace {

constexpr std::uint64_t kSize = 32;
constexpr std::uint64_t kSmallWorkspaceBytes = std::uint64_t{64} << 10;

class CublasLtLimits : public EmulationTest {
 protected:
  DeviceArray<std::uint16_t> weight_{std::vector<std::uint16_t>(kSize * kSize)};
  DeviceArray<std::uint16_t> input_{std::vector<std::uint16_t>(kSize * kSize)};
  DeviceArray<std::uint16_t> output_{kSize * kSize};
  LtProduct product_{kSize, kSize, kSize};
};

TEST_F(CublasLtLimits, AnAlgorithmWantsNoMoreWorkspaceThanWasOffered) {
  EXPECT_EQ(product_.Algorithms().size(), 1u);
  product_.Prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kSmallWorkspaceBytes);
  const auto algorithms = product_.Algorithms();
  EXPECT_EQ(algorithms.size(), 3u);
  EXPECT_EQ(algorithms[0].workspaceSize, kSmallWorkspaceBytes);
  const DeviceArray<std::byte> workspace(kSmallWorkspaceBytes);
  EXPECT_EQ(product_.Run(weight_.data(), input_.data(), output_.data(), &algorithms[0].algo, workspace.data(),
                         kSmallWorkspaceBytes - 1),
            CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLtLimits, AnAlgorithmIsHeldToTheAlignmentItWasAskedWith) {
  const auto strict = product_.Algorithms();
  EXPECT_EQ(product_.Run(weight_.data() + 8, input_.data(), output_.data(), &strict[0].algo, nullptr, 0),
            CUBLAS_STATUS_INVALID_VALUE);
  product_.Prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t{16});
  const auto loose = product_.Algorithms();
  EXPECT_EQ(product_.Run(weight_.data() + 8, input_.data(), output_.data(), &loose[0].algo, nullptr, 0),
            CUBLAS_STATUS_EXECUTION_FAILED)
      << "aligned, but it runs out of its memory";
}

TEST_F(CublasLtLimits, AnAlgorithmMayNotServeAnotherShape) {
  const LtProduct fewer(kSize, kSize - 3, kSize);
  const auto algorithms = product_.Algorithms();
  EXPECT_EQ(fewer.Run(weight_.data(), input_.data(), output_.data(), &algorithms[0].algo, nullptr, 0),
            CUBLAS_STATUS_SUCCESS);
  product_.Prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kSmallWorkspaceBytes);
  const DeviceArray<std::byte> workspace(kSmallWorkspaceBytes);
  const auto fastest = product_.Algorithms()[0];
  EXPECT_EQ(
      fewer.Run(weight_.data(), input_.data(), output_.data(), &fastest.algo, workspace.data(), kSmallWorkspaceBytes),
      CUBLAS_STATUS_NOT_SUPPORTED);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(CublasLtLimits, TheProductIsWorkOfTheStream) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  const auto algorithms = product_.Algorithms();
  ASSERT_EQ(product_.Run(weight_.data(), input_.data(), output_.data(), &algorithms[0].algo, nullptr, 0, stream),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(output_.data()[0], 0xffff) << "too early";
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(output_.data()[0], 0);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(CublasLtLimits, OtherTypesAreNotSupported) {
  const LtProduct integers(kSize, kSize, kSize, CUDA_R_8I);
  const cublasLtMatmulAlgo_t never_chosen{};
  EXPECT_EQ(product_.Run(weight_.data(), input_.data(), output_.data(), &never_chosen, nullptr, 0),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(integers.Run(weight_.data(), input_.data(), output_.data(), nullptr, nullptr, 0),
            CUBLAS_STATUS_NOT_SUPPORTED);
}

}  // namespace
}  // namespace berth::emulation
