#include "kernels/cuda/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "emulation/device_array.h"
#include "kernels/cuda/bf16_data.h"

namespace berth::cuda {
namespace {

using emulation::DeviceArray;

class Elementwise : public ::testing::Test {
 protected:
  void SetUp() override { BERTH_REQUIRE_DEVICE(); }
};

TEST_F(Elementwise, ExtremeGatesGiveZeroOrTheProduct) {
  std::vector<std::uint16_t> gate_up(16, ToBf16(2.0f));
  gate_up[0] = ToBf16(-1000.0f);
  gate_up[1] = ToBf16(1000.0f);
  gate_up[2] = ToBf16(-1e30f);
  gate_up[3] = ToBf16(0x1p100f);
  const DeviceArray<std::uint16_t> input(gate_up);
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    const DeviceArray<std::uint16_t> output(8);
    ASSERT_EQ(
        LaunchGatedActivation(
            {.gate_up = input.data(), .output = output.data(), .num_tokens = 1, .size = 8, .activation = activation},
            nullptr),
        cudaSuccess);
    const std::vector<std::uint16_t> results = output.Read();
    EXPECT_EQ(FromBf16(results[0]), 0);
    EXPECT_EQ(FromBf16(results[1]), 2000);
    EXPECT_EQ(FromBf16(results[2]), 0);
    EXPECT_EQ(FromBf16(results[3]), 0x1p101);
  }
}

// As a swap does it: the device's pool has its parts apart, the host's its blocks.
TEST_F(Elementwise, BlockCopiesReachAPoolOfAnotherLayoutInPinnedMemory) {
  constexpr std::size_t kParts = 3;
  constexpr std::size_t kPartBytes = 32;
  constexpr std::size_t kBlocks = 4;
  constexpr std::size_t kHostBlocks = 2;
  std::vector<std::uint8_t> pool(kParts * kBlocks * kPartBytes);
  for (std::size_t i = 0; i < pool.size(); ++i) pool[i] = static_cast<std::uint8_t>(i * 31 >> 3);
  const DeviceArray<std::uint8_t> device_pool(pool);
  void* host = nullptr;
  ASSERT_EQ(cudaMallocHost(&host, kHostBlocks * kParts * kPartBytes), cudaSuccess);
  const auto* host_bytes = static_cast<const std::uint8_t*>(host);
  const DeviceArray<std::int32_t> from(std::vector<std::int32_t>{3, 0});
  const DeviceArray<std::int32_t> to(std::vector<std::int32_t>{0, 1});
  ASSERT_EQ(
      LaunchBlockCopies({.from = from.data(),
                         .to = to.data(),
                         .source = {reinterpret_cast<std::byte*>(device_pool.data()), kBlocks * kPartBytes, kPartBytes},
                         .destination = {static_cast<std::byte*>(host), kPartBytes, kParts * kPartBytes},
                         .part_bytes = kPartBytes,
                         .num_parts = kParts,
                         .num_copies = 2},
                        nullptr),
      cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (std::size_t part = 0; part < kParts; ++part) {
    for (std::size_t i = 0; i < kPartBytes; ++i) {
      ASSERT_EQ(host_bytes[part * kPartBytes + i], pool[(part * kBlocks + 3) * kPartBytes + i]);
      ASSERT_EQ(host_bytes[(kParts + part) * kPartBytes + i], pool[part * kBlocks * kPartBytes + i]);
    }
  }
  EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
}

TEST_F(Elementwise, OddSizesAreRefused) {
  GatedActivationParams gated{};
  gated.num_tokens = 1;
  gated.size = 12;
  EXPECT_EQ(LaunchGatedActivation(gated, nullptr), cudaErrorInvalidValue);
  EmbeddingParams embedding{};
  embedding.num_tokens = 1;
  embedding.hidden_size = 4;
  EXPECT_EQ(LaunchEmbedding(embedding, nullptr), cudaErrorInvalidValue);
  BlockCopiesParams copies{};
  copies.num_copies = 1;
  copies.num_parts = 1;
  copies.part_bytes = 24;
  EXPECT_EQ(LaunchBlockCopies(copies, nullptr), cudaErrorInvalidValue);
  copies.part_bytes = 32;
  copies.destination.block_stride = 8;
  EXPECT_EQ(LaunchBlockCopies(copies, nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace berth::cuda
