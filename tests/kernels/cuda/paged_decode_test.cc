#include "kernels/cuda/paged_decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <vector>

#include "emulation/device_array.h"
#include "kernels/cuda/bf16_data.h"
#include "kernels/cuda/head_dims.h"
#include "kernels/cuda/paged_cache.h"

namespace berth::cuda {
namespace {

using emulation::DeviceArray;

struct DecodeShape {
  int num_q_heads;
  CacheShape cache;
  std::vector<int> lengths;
};

void PrintTo(const DecodeShape& shape, std::ostream* out) { *out << Name(shape.cache); }

std::vector<StoredPositions> UpTo(const std::vector<int>& lengths) {
  std::vector<StoredPositions> stored;
  for (const int length : lengths) stored.push_back({.begin = 0, .end = length});
  return stored;
}

class PagedData {
 public:
  explicit PagedData(const DecodeShape& shape)
      : shape_(shape),
        cache_(shape.cache, UpTo(shape.lengths)),
        q_(RandomBf16(shape.lengths.size() * Size(shape.num_q_heads) * Size(shape.cache.head_dim), 6)) {}

  // The result of the sequences from `first` on, `count` of them.
  std::vector<std::uint16_t> Run(std::size_t first, std::size_t count, int chunk_tokens, int num_chunks,
                                 float scale) const {
    const DeviceArray<std::uint16_t> q(q_);
    const DeviceArray<std::int32_t> lengths(std::vector<std::int32_t>(shape_.lengths.begin(), shape_.lengths.end()));
    const std::int64_t q_stride = std::int64_t{shape_.num_q_heads} * shape_.cache.head_dim;
    const DeviceArray<std::uint16_t> output(count * Size(q_stride));
    PagedDecodeParams params{.q = q.data() + first * Size(q_stride),
                             .q_stride = q_stride,
                             .cache = cache_.OnDevice(),
                             .block_tables = cache_.device_tables() + first * Size(cache_.max_blocks()),
                             .kv_lengths = lengths.data() + first,
                             .output = output.data(),
                             .partials = nullptr,
                             .max_blocks = cache_.max_blocks(),
                             .num_sequences = static_cast<std::int32_t>(count),
                             .num_q_heads = shape_.num_q_heads,
                             .chunk_tokens = chunk_tokens,
                             .num_chunks = num_chunks,
                             .scale = scale};
    const DeviceArray<float> partials(Size(PagedDecodePartialFloats(params)));
    params.partials = partials.data();
    EXPECT_EQ(LaunchPagedDecode(params, nullptr), cudaSuccess);
    return output.Read();
  }

 private:
  DecodeShape shape_;
  PagedCache cache_;
  std::vector<std::uint16_t> q_;
};

class PagedDecode : public ::testing::TestWithParam<DecodeShape> {
 protected:
  void SetUp() override {
    BERTH_REQUIRE_DEVICE();
    if (!IsTunedHeadDim(GetParam().cache.head_dim)) GTEST_SKIP() << "not built for the head dimension";
  }
  float Scale() const { return 1.0f / std::sqrt(static_cast<float>(GetParam().cache.head_dim)); }
};

TEST_P(PagedDecode, ASequenceDoesNotDependOnItsBatch) {
  const DecodeShape& shape = GetParam();
  const PagedData data(shape);
  const std::vector<std::uint16_t> together = data.Run(0, shape.lengths.size(), 64, 6, Scale());
  const std::size_t last = shape.lengths.size() - 1;
  const int chunks = std::max(1, (shape.lengths[last] + 63) / 64);
  const std::vector<std::uint16_t> alone = data.Run(last, 1, 64, chunks, Scale());
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.end() - static_cast<std::ptrdiff_t>(alone.size())));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, PagedDecode,
    ::testing::Values(DecodeShape{9, {3, 64, 16, KvElement::kBf16}, {1, 0, 64, 200, 333}},
                      DecodeShape{9, {3, 64, 16, KvElement::kInt8}, {17, 63, 200}},
                      DecodeShape{4, {4, 80, 16, KvElement::kBf16}, {65, 31}},
                      DecodeShape{4, {1, 80, 32, KvElement::kInt8}, {65, 31}},
                      DecodeShape{4, {2, 96, 8, KvElement::kBf16}, {130, 15}},
                      DecodeShape{4, {2, 96, 8, KvElement::kInt8}, {130, 15}},
                      DecodeShape{20, {1, 128, 16, KvElement::kBf16}, {100, 16}},  // more heads than a tile has rows
                      DecodeShape{8, {1, 128, 64, KvElement::kInt8}, {100, 16}},
                      DecodeShape{2, {1, 256, 16, KvElement::kBf16}, {70, 129}},
                      DecodeShape{2, {1, 256, 16, KvElement::kInt8}, {70, 129}}),
    [](const auto& row) { return Name(row.param.cache); });

TEST(PagedDecodeLimits, AreRefusedBeforeTheLaunch) {
  BERTH_REQUIRE_DEVICE();
  PagedDecodeParams good{};
  good.cache = {};
  good.cache.num_kv_heads = 2;
  good.cache.head_dim = 64;
  good.cache.block_tokens = 16;
  good.num_q_heads = 4;
  good.chunk_tokens = 64;
  good.num_chunks = 1;
  EXPECT_EQ(LaunchPagedDecode(good, nullptr), cudaSuccess) << "no sequence, no work";
  good.num_sequences = 1;
  for (int head_dim = 8; head_dim <= 512; head_dim += 8) {
    if (IsTunedHeadDim(head_dim)) continue;
    PagedDecodeParams other = good;
    other.cache.head_dim = head_dim;
    EXPECT_EQ(LaunchPagedDecode(other, nullptr), cudaErrorInvalidValue) << head_dim;
  }
  PagedDecodeParams bad = good;
  bad.num_q_heads = 5;
  EXPECT_EQ(LaunchPagedDecode(bad, nullptr), cudaErrorInvalidValue);
  bad = good;
  bad.chunk_tokens = 96;
  EXPECT_EQ(LaunchPagedDecode(bad, nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace berth::cuda
