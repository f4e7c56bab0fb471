#include "kernels/cuda/rope_kv_write.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "emulation/device_array.h"
#include "kernels/cuda/bf16_data.h"

namespace berth::cuda {
namespace {

using emulation::DeviceArray;

struct Shape {
  int num_q_heads;
  int num_kv_heads;
  int head_dim;
  int rotary_pairs;
  RopePairs pairs;
  KvElement element;
};

std::string Name(const Shape& shape) {
  return "Dim" + std::to_string(shape.head_dim) + (shape.element == KvElement::kInt8 ? "Int8" : "Bf16");
}

void PrintTo(const Shape& shape, std::ostream* out) { *out << Name(shape); }

constexpr int kBlockTokens = 16;
constexpr int kBlocks = 5;
constexpr int kPositions = 100;
constexpr std::size_t kNoSlot = 0xffff;  // bytes of fresh memory

class RopeKvWrite : public ::testing::TestWithParam<Shape> {
 protected:
  RopeKvWrite() {
    std::vector<float> cosines;
    std::vector<float> sines;
    for (int position = 0; position < kPositions; ++position) {
      for (int pair = 0; pair < shape_.rotary_pairs; ++pair) {
        const double angle = position * std::pow(10000.0, -static_cast<double>(pair) / shape_.rotary_pairs);
        cosines.push_back(static_cast<float>(std::cos(angle)));
        sines.push_back(static_cast<float>(std::sin(angle)));
      }
    }
    cosines_ = cosines;
    sines_ = sines;
    qkv_ = RandomBf16(positions_.size() * static_cast<std::size_t>(Heads() * shape_.head_dim), 7, 3.0f);
  }
  void SetUp() override { BERTH_REQUIRE_DEVICE(); }

  int Heads() const { return shape_.num_q_heads + 2 * shape_.num_kv_heads; }
  std::size_t HeadAt(std::size_t token, int head) const {
    return (token * static_cast<std::size_t>(Heads()) + static_cast<std::size_t>(head)) *
           static_cast<std::size_t>(shape_.head_dim);
  }

  // The head after the rotation, in float64.
  std::vector<double> Rotated(std::size_t token, int head) const {
    const auto dim = static_cast<std::size_t>(shape_.head_dim);
    std::vector<double> x(dim);
    for (std::size_t i = 0; i < dim; ++i) x[i] = FromBf16(qkv_[HeadAt(token, head) + i]);
    if (head >= shape_.num_q_heads + shape_.num_kv_heads) return x;
    const auto pairs = static_cast<std::size_t>(shape_.rotary_pairs);
    std::vector<double> result = x;
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const std::size_t first = shape_.pairs == RopePairs::kAdjacent ? 2 * pair : pair;
      const std::size_t second = shape_.pairs == RopePairs::kAdjacent ? first + 1 : pair + pairs;
      const std::size_t angle = static_cast<std::size_t>(positions_[token]) * pairs + pair;
      result[first] = x[first] * cosines_[angle] - x[second] * sines_[angle];
      result[second] = x[first] * sines_[angle] + x[second] * cosines_[angle];
    }
    return result;
  }

  // In the cache: of head 0's first element of a token's slot.
  std::size_t SlotAt(std::size_t token, int kv_head) const {
    const auto slot = static_cast<std::size_t>(slots_[token]);
    return (slot / kBlockTokens * static_cast<std::size_t>(shape_.num_kv_heads) + static_cast<std::size_t>(kv_head)) *
               kBlockTokens +
           slot % kBlockTokens;
  }

  void CheckBf16(const std::vector<std::uint16_t>& cache, int first_head) const {
    std::vector<bool> written(cache.size(), false);
    const auto dim = static_cast<std::size_t>(shape_.head_dim);
    for (std::size_t token = 0; token < positions_.size(); ++token) {
      for (int head = 0; head < shape_.num_kv_heads; ++head) {
        const std::vector<double> expected = Rotated(token, first_head + head);
        for (std::size_t i = 0; i < dim; ++i) {
          const std::size_t at = SlotAt(token, head) * dim + i;
          written[at] = true;
          ASSERT_NEAR(FromBf16(cache[at]), expected[i], Bf16Unit(expected[i]) + 1e-5)
              << token << ", " << head << ", " << i;
        }
      }
    }
    for (std::size_t i = 0; i < cache.size(); ++i) ASSERT_TRUE(written[i] || cache[i] == kNoSlot) << i;
  }

  void CheckInt8(const std::vector<std::int8_t>& codes, const std::vector<std::uint16_t>& scales,
                 int first_head) const {
    const auto dim = static_cast<std::size_t>(shape_.head_dim);
    for (std::size_t token = 0; token < positions_.size(); ++token) {
      for (int head = 0; head < shape_.num_kv_heads; ++head) {
        const std::vector<double> expected = Rotated(token, first_head + head);
        double highest = 0;
        for (const double value : expected) highest = std::max(highest, std::abs(value));
        const double scale = cpu::HalfToFloat(scales[SlotAt(token, head)]);
        ASSERT_GE(scale * 127, highest * (1 - 1e-6));
        ASSERT_LE(scale * 127, highest * (1 + 2e-3)) << "a float16 rounded up";
        for (std::size_t i = 0; i < dim; ++i) {
          ASSERT_NEAR(codes[SlotAt(token, head) * dim + i] * scale, expected[i], scale / 2 + 1e-5)
              << token << ", " << head << ", " << i;
        }
      }
    }
  }

  RopeKvWriteParams Params(std::uint16_t* qkv, const std::int32_t* positions, const std::int64_t* slots,
                           const float* cosines, const float* sines, const KvCache& cache) const {
    return {.qkv = qkv,
            .positions = positions,
            .slots = slots,
            .cosines = cosines,
            .sines = sines,
            .cache = cache,
            .num_tokens = static_cast<std::int32_t>(positions_.size()),
            .num_q_heads = shape_.num_q_heads,
            .rotary_pairs = shape_.rotary_pairs,
            .pairs = shape_.pairs};
  }

  const Shape& shape_ = GetParam();
  std::vector<std::int32_t> positions_ = {0, 1, 17, 99, 3};
  std::vector<std::int64_t> slots_ = {0, 16 * 4 + 15, 33, 7, 16 * 2 + 8};
  std::vector<float> cosines_;
  std::vector<float> sines_;
  std::vector<std::uint16_t> qkv_;
};

TEST_P(RopeKvWrite, RotatesQueriesAndFillsTheSlots) {
  const DeviceArray<std::uint16_t> qkv(qkv_);
  const DeviceArray<std::int32_t> positions(positions_);
  const DeviceArray<std::int64_t> slots(slots_);
  const DeviceArray<float> cosines(cosines_);
  const DeviceArray<float> sines(sines_);
  const std::size_t block_tokens = static_cast<std::size_t>(shape_.num_kv_heads) * kBlockTokens;
  const std::size_t block_elements = block_tokens * static_cast<std::size_t>(shape_.head_dim);
  const bool int8 = shape_.element == KvElement::kInt8;
  // Bytes, so that both element types lie in them.
  const std::size_t bytes = kBlocks * block_elements * (int8 ? 1 : 2);
  const DeviceArray<std::uint16_t> keys(std::vector<std::uint16_t>(bytes / 2, kNoSlot));
  const DeviceArray<std::uint16_t> values(std::vector<std::uint16_t>(bytes / 2, kNoSlot));
  const DeviceArray<std::uint16_t> key_scales(kBlocks * block_tokens);
  const DeviceArray<std::uint16_t> value_scales(kBlocks * block_tokens);
  const KvCache cache{.keys = keys.data(),
                      .values = values.data(),
                      .key_scales = key_scales.data(),
                      .value_scales = value_scales.data(),
                      .block_stride = static_cast<std::int64_t>(block_elements),
                      .scale_block_stride = static_cast<std::int64_t>(block_tokens),
                      .num_kv_heads = shape_.num_kv_heads,
                      .head_dim = shape_.head_dim,
                      .block_tokens = kBlockTokens,
                      .element = shape_.element};
  ASSERT_EQ(LaunchRopeKvWrite(Params(qkv.data(), positions.data(), slots.data(), cosines.data(), sines.data(), cache),
                              nullptr),
            cudaSuccess);
  const std::vector<std::uint16_t> after = qkv.Read();
  const auto dim = static_cast<std::size_t>(shape_.head_dim);
  for (std::size_t token = 0; token < positions_.size(); ++token) {
    for (int head = 0; head < Heads(); ++head) {
      const std::vector<double> expected = Rotated(token, head);
      for (std::size_t i = 0; i < dim; ++i) {
        const std::size_t at = HeadAt(token, head) + i;
        if (head < shape_.num_q_heads) {
          ASSERT_NEAR(FromBf16(after[at]), expected[i], Bf16Unit(expected[i]) + 1e-5)
              << token << ", " << head << ", " << i;
        } else {
          ASSERT_EQ(after[at], qkv_[at]) << "keys and values stay as they were";
        }
      }
    }
  }
  const int first_key = shape_.num_q_heads;
  const int first_value = first_key + shape_.num_kv_heads;
  if (int8) {
    const auto codes = [](const std::vector<std::uint16_t>& words) {
      std::vector<std::int8_t> result;
      for (const std::uint16_t word : words) {
        result.push_back(static_cast<std::int8_t>(word & 0xff));
        result.push_back(static_cast<std::int8_t>(word >> 8));
      }
      return result;
    };
    CheckInt8(codes(keys.Read()), key_scales.Read(), first_key);
    CheckInt8(codes(values.Read()), value_scales.Read(), first_value);
  } else {
    CheckBf16(keys.Read(), first_key);
    CheckBf16(values.Read(), first_value);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, RopeKvWrite,
                         ::testing::Values(Shape{8, 4, 8, 4, RopePairs::kAdjacent, KvElement::kBf16},
                                           Shape{8, 4, 8, 4, RopePairs::kHalves, KvElement::kInt8},
                                           Shape{9, 3, 64, 32, RopePairs::kHalves, KvElement::kBf16},
                                           Shape{9, 3, 64, 32, RopePairs::kHalves, KvElement::kInt8},
                                           Shape{4, 4, 80, 16, RopePairs::kHalves,
                                                 KvElement::kBf16},  // the rest passes unrotated
                                           Shape{2, 1, 96, 48, RopePairs::kAdjacent, KvElement::kInt8},
                                           Shape{3, 1, 128, 64, RopePairs::kAdjacent, KvElement::kBf16},
                                           Shape{2, 2, 256, 128, RopePairs::kHalves, KvElement::kInt8}),
                         [](const auto& row) { return Name(row.param); });

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

TEST(RopeKvWriteNumbers, ARowWithoutASlotWritesNothing) {
  BERTH_REQUIRE_DEVICE();
  const DeviceArray<std::uint16_t> qkv(std::vector<std::uint16_t>(2 * 3 * 8, 0x3f80));
  const DeviceArray<std::int32_t> positions(std::vector<std::int32_t>{0, 0});
  const DeviceArray<std::int64_t> slots(std::vector<std::int64_t>{-1, 1});
  const std::vector<std::uint16_t> before(2 * 8, 0x4000);
  const DeviceArray<std::uint16_t> keys(before);
  const DeviceArray<std::uint16_t> values(before);
  RopeKvWriteParams params{};
  params.qkv = qkv.data();
  params.positions = positions.data();
  params.slots = slots.data();
  params.cache = {.keys = keys.data(),
                  .values = values.data(),
                  .key_scales = nullptr,
                  .value_scales = nullptr,
                  .block_stride = 16,
                  .scale_block_stride = 0,
                  .num_kv_heads = 1,
                  .head_dim = 8,
                  .block_tokens = 2,
                  .element = KvElement::kBf16};
  params.num_tokens = 2;
  params.num_q_heads = 1;
  ASSERT_EQ(LaunchRopeKvWrite(params, nullptr), cudaSuccess);
  std::vector<std::uint16_t> expected = before;
  std::fill(expected.begin() + 8, expected.end(), std::uint16_t{0x3f80});
  EXPECT_EQ(keys.Read(), expected);
  EXPECT_EQ(values.Read(), expected);
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
