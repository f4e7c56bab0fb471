#include "kernels/cuda/rms_norm.h"

#include <gtest/gtest.h>

#include "emulation/device_array.h"

namespace berth::cuda {
namespace {

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
