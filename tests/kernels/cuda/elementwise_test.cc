#include "kernels/cuda/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
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

double Activated(Activation activation, double x) {
  if (activation == Activation::kSilu) return x / (1 + std::exp(-x));
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

TEST_F(Elementwise, EveryGateIsActivatedAndMultiplied) {
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    for (const std::size_t size : {8u, 1536u, 2056u}) {
      constexpr std::size_t kTokens = 3;
      const std::vector<std::uint16_t> gate_up = RandomBf16(kTokens * 2 * size, 11, 4.0f);
      const DeviceArray<std::uint16_t> input(gate_up);
      const DeviceArray<std::uint16_t> output(kTokens * size);
      ASSERT_EQ(LaunchGatedActivation({.gate_up = input.data(),
                                       .output = output.data(),
                                       .num_tokens = static_cast<std::int32_t>(kTokens),
                                       .size = static_cast<std::int32_t>(size),
                                       .activation = activation},
                                      nullptr),
                cudaSuccess);
      const std::vector<std::uint16_t> results = output.Read();
      for (std::size_t i = 0; i < results.size(); ++i) {
        const double gate = FromBf16(gate_up[i / size * 2 * size + i % size]);
        const double up = FromBf16(gate_up[i / size * 2 * size + size + i % size]);
        const double expected = Activated(activation, gate) * up;
        // 1 + tanh is all cancellation in float64 where the gate is far below zero.
        ASSERT_NEAR(FromBf16(results[i]), expected, Bf16Unit(expected) + 1e-13 * std::abs(gate * up)) << i;
      }
    }
  }
}

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

TEST_F(Elementwise, EmbeddingTakesTheTokensRows) {
  constexpr std::size_t kHidden = 576;
  const std::vector<std::uint16_t> table = RandomBf16(10 * kHidden, 12);
  const std::vector<std::int32_t> ids = {3, 9, 0, 3};
  const DeviceArray<std::uint16_t> device_table(table);
  const DeviceArray<std::int32_t> device_ids(ids);
  const DeviceArray<std::uint16_t> output(ids.size() * kHidden);
  ASSERT_EQ(LaunchEmbedding({.token_ids = device_ids.data(),
                             .table = device_table.data(),
                             .output = output.data(),
                             .num_tokens = static_cast<std::int32_t>(ids.size()),
                             .hidden_size = static_cast<std::int32_t>(kHidden)},
                            nullptr),
            cudaSuccess);
  const std::vector<std::uint16_t> results = output.Read();
  for (std::size_t i = 0; i < results.size(); ++i) {
    ASSERT_EQ(results[i], table[static_cast<std::size_t>(ids[i / kHidden]) * kHidden + i % kHidden]) << i;
  }
}

TEST_F(Elementwise, BlockCopiesTouchEveryPartAndNothingElse) {
  constexpr std::size_t kParts = 3;
  constexpr std::size_t kBlocks = 6;
  constexpr std::size_t kPartBytes = 4128;  // more than a block of threads copies at once
  constexpr std::size_t kPartStride = kBlocks * kPartBytes;
  std::vector<std::uint8_t> pool(kParts * kPartStride);
  for (std::size_t i = 0; i < pool.size(); ++i) pool[i] = static_cast<std::uint8_t>(i * 31 >> 3);
  const DeviceArray<std::uint8_t> device_pool(pool);
  const DeviceArray<std::int32_t> from(std::vector<std::int32_t>{5, 0});
  const DeviceArray<std::int32_t> to(std::vector<std::int32_t>{1, 4});
  const BlockParts parts{reinterpret_cast<std::byte*>(device_pool.data()), kPartStride, kPartBytes};
  ASSERT_EQ(LaunchBlockCopies({.from = from.data(),
                               .to = to.data(),
                               .source = parts,
                               .destination = parts,
                               .part_bytes = kPartBytes,
                               .num_parts = kParts,
                               .num_copies = 2},
                              nullptr),
            cudaSuccess);
  std::vector<std::uint8_t> expected = pool;
  for (std::size_t part = 0; part < kParts; ++part) {
    for (const auto& [source, destination] : {std::pair<std::size_t, std::size_t>{5, 1}, {0, 4}}) {
      for (std::size_t i = 0; i < kPartBytes; ++i) {
        expected[part * kPartStride + destination * kPartBytes + i] =
            pool[part * kPartStride + source * kPartBytes + i];
      }
    }
  }
  EXPECT_EQ(device_pool.Read(), expected);
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
