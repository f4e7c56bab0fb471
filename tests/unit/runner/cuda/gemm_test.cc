// Products through cuBLASLt, row-major.
#include "runner/cuda/gemm.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "cuda_fixture.h"

namespace berth::test {
namespace {

using emulation::DeviceArray;

float FromBf16(std::uint16_t value) { return std::bit_cast<float>(std::uint32_t{value} << 16U); }

// Small whole numbers: exact in bfloat16, and so are their sums in float32.
std::vector<std::uint16_t> Numbers(std::size_t count, unsigned factor) {
  std::vector<std::uint16_t> numbers(count);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(i * factor % 7) - 3.0F;
    numbers[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U);
  }
  return numbers;
}

using GemmTest = DeviceTest;

TEST_F(GemmTest, MultipliesRowsByRowsForEveryNumberOfTokens) {
  constexpr std::int32_t kOutputs = 24;
  constexpr std::int32_t kInputs = 16;
  constexpr std::int32_t kStride = 40;  // a part of wider rows
  constexpr std::int32_t kMaxTokens = 9;
  absl::StatusOr<Gemms> gemms = Gemms::Create("");
  ASSERT_TRUE(gemms.ok()) << gemms.status();
  const DeviceArray<std::byte> workspace(Gemms::kWorkspaceBytes);
  gemms->UseWorkspace(workspace.data());
  const GemmShape shape{kOutputs, kInputs, kStride, /*float_output=*/true};
  ASSERT_EQ(gemms->Prepare(shape, kMaxTokens), absl::OkStatus());
  const std::vector<std::uint16_t> weight = Numbers(kOutputs * kInputs, 5);
  const std::vector<std::uint16_t> input = Numbers(kMaxTokens * kInputs, 3);
  const DeviceArray<std::uint16_t> device_weight(weight);
  const DeviceArray<std::uint16_t> device_input(input);
  // The fastest algorithm of the stand-in for up to 8 tokens does not take 5 of them, and for 9 the one for up to 16
  // wants more workspace: others are found, once.
  for (const std::int32_t tokens : {1, 2, 5, 8, 5, 9, 9}) {
    const DeviceArray<float> output(std::vector<float>(static_cast<std::size_t>(tokens) * kStride, NAN));
    ASSERT_EQ(gemms->Multiply(shape, device_weight.data(), device_input.data(), output.data(), tokens, nullptr),
              absl::OkStatus());
    const std::vector<float> results = output.Read();
    for (std::size_t token = 0; token < static_cast<std::size_t>(tokens); ++token) {
      for (std::size_t row = 0; row < kOutputs; ++row) {
        float sum = 0;
        for (std::size_t i = 0; i < kInputs; ++i) {
          sum += FromBf16(weight[row * kInputs + i]) * FromBf16(input[token * kInputs + i]);
        }
        ASSERT_EQ(results[token * kStride + row], sum) << tokens << " tokens: " << token << ", " << row;
      }
      if (token + 1 < static_cast<std::size_t>(tokens)) {
        ASSERT_TRUE(std::isnan(results[token * kStride + kOutputs])) << "what lies between the rows stays";
      }
    }
  }
}

}  // namespace
}  // namespace berth::test
