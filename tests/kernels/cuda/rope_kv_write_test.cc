#include "kernels/cuda/rope_kv_write.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "emulation/device_array.h"
#include "kernels/cuda/bf16_data.h"

namespace berth::cuda {
namespace {

using emulation::DeviceArray;

TEST(RopeKvWriteNumbers, ANanSpoilsItsOwnHeadAlone) {
  BERTH_REQUIRE_DEVICE();
  // One token, one KV head, no query: the key holds a NaN, the value is all zeros.
  std::vector<std::uint16_t> row(2 * 16, 0);
  row[3] = 0x7fc0;
  const DeviceArray<std::uint16_t> qkv(row);
  const DeviceArray<std::int32_t> positions(std::vector<std::int32_t>{0});
  const DeviceArray<std::int64_t> slots(std::vector<std::int64_t>{0});
  const DeviceArray<std::int8_t> keys(16);
  const DeviceArray<std::int8_t> values(16);
  const DeviceArray<std::uint16_t> key_scales(1);
  const DeviceArray<std::uint16_t> value_scales(1);
  RopeKvWriteParams params{};
  params.qkv = qkv.data();
  params.positions = positions.data();
  params.slots = slots.data();
  params.cache = {.keys = keys.data(),
                  .values = values.data(),
                  .key_scales = key_scales.data(),
                  .value_scales = value_scales.data(),
                  .block_stride = 16,
                  .scale_block_stride = 1,
                  .num_kv_heads = 1,
                  .head_dim = 16,
                  .block_tokens = 1,
                  .element = KvElement::kInt8};
  params.num_tokens = 1;
  ASSERT_EQ(LaunchRopeKvWrite(params, nullptr), cudaSuccess);
  EXPECT_TRUE(std::isnan(cpu::HalfToFloat(key_scales.Read()[0])));
  EXPECT_EQ(value_scales.Read()[0], 0);
  EXPECT_EQ(values.Read(), std::vector<std::int8_t>(16, 0));
}

TEST(RopeKvWriteLimits, AreRefusedBeforeTheLaunch) {
  BERTH_REQUIRE_DEVICE();
  RopeKvWriteParams params{};
  params.num_tokens = 1;
  params.cache.num_kv_heads = 1;
  for (const int head_dim : {0, 7, 258}) {
    params.cache.head_dim = head_dim;
    EXPECT_EQ(LaunchRopeKvWrite(params, nullptr), cudaErrorInvalidValue) << head_dim;
  }
  params.cache.head_dim = 64;
  for (const int rotary_pairs : {3, 34}) {
    params.rotary_pairs = rotary_pairs;
    EXPECT_EQ(LaunchRopeKvWrite(params, nullptr), cudaErrorInvalidValue) << rotary_pairs;
  }
}

}  // namespace
}  // namespace berth::cuda
