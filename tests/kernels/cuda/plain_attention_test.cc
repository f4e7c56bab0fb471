#include "kernels/cuda/plain_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <vector>

#include "emulation/device_array.h"
#include "kernels/cuda/bf16_data.h"
#include "kernels/cuda/paged_cache.h"

namespace berth::cuda {
namespace {

using emulation::DeviceArray;

struct Row {
  std::int32_t sequence;
  std::int32_t kv_length;
};

struct PlainShape {
  int num_q_heads;
  CacheShape cache;
  int window;
};

void PrintTo(const PlainShape& shape, std::ostream* out) { *out << Name(shape.cache); }

class PlainAttention : public ::testing::TestWithParam<PlainShape> {
 protected:
  void SetUp() override { BERTH_REQUIRE_DEVICE(); }

  float Scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.cache.head_dim)); }
  std::size_t RowSize() const { return Size(shape_.num_q_heads) * Size(shape_.cache.head_dim); }

  std::vector<std::uint16_t> Run(const PagedCache& cache, const std::vector<std::uint16_t>& queries,
                                 const std::vector<Row>& rows) const {
    std::vector<std::int32_t> row_sequences;
    std::vector<std::int32_t> row_lengths;
    for (const Row& row : rows) {
      row_sequences.push_back(row.sequence);
      row_lengths.push_back(row.kv_length);
    }
    const DeviceArray<std::uint16_t> q(queries);
    const DeviceArray<std::int32_t> sequences(row_sequences);
    const DeviceArray<std::int32_t> lengths(row_lengths);
    const DeviceArray<std::uint16_t> output(rows.size() * RowSize());
    const PlainAttentionParams params{.q = q.data(),
                                      .q_stride = static_cast<std::int64_t>(RowSize()),
                                      .cache = cache.OnDevice(),
                                      .block_tables = cache.device_tables(),
                                      .sequences = sequences.data(),
                                      .kv_lengths = lengths.data(),
                                      .output = output.data(),
                                      .max_blocks = cache.max_blocks(),
                                      .num_rows = static_cast<std::int32_t>(rows.size()),
                                      .num_q_heads = shape_.num_q_heads,
                                      .window = shape_.window,
                                      .scale = Scale()};
    EXPECT_EQ(LaunchPlainAttention(params, nullptr), cudaSuccess);
    return output.Read();
  }

  const PlainShape& shape_ = GetParam();
  // Decode of one sequence, a piece of a prompt of the other, a row that attends to nothing.
  std::vector<Row> rows_ = {{.sequence = 1, .kv_length = 300}, {.sequence = 0, .kv_length = 0},
                            {.sequence = 0, .kv_length = 1},   {.sequence = 0, .kv_length = 2},
                            {.sequence = 0, .kv_length = 128}, {.sequence = 0, .kv_length = 129}};
};

TEST_P(PlainAttention, ARowDoesNotDependOnTheOthers) {
  const PagedCache cache(shape_.cache, {{.begin = 0, .end = 129}, {.begin = 0, .end = 300}});
  const std::vector<std::uint16_t> q = RandomBf16(rows_.size() * RowSize(), 6);
  const std::vector<std::uint16_t> together = Run(cache, q, rows_);
  const std::vector<std::uint16_t> last_q(q.end() - static_cast<std::ptrdiff_t>(RowSize()), q.end());
  const std::vector<std::uint16_t> alone = Run(cache, last_q, {rows_.back()});
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.end() - static_cast<std::ptrdiff_t>(alone.size())));
}

INSTANTIATE_TEST_SUITE_P(Shapes, PlainAttention,
                         ::testing::Values(PlainShape{8, {4, 8, 16, KvElement::kBf16}, 0},
                                           PlainShape{8, {4, 8, 16, KvElement::kInt8}, 0},
                                           PlainShape{2, {2, 6, 1, KvElement::kBf16}, 100},
                                           PlainShape{3, {1, 48, 8, KvElement::kInt8}, 140},
                                           PlainShape{2, {1, 256, 32, KvElement::kBf16}, 0}),
                         [](const auto& row) { return Name(row.param.cache); });

TEST(PlainAttentionLimits, AreRefusedBeforeTheLaunch) {
  BERTH_REQUIRE_DEVICE();
  PlainAttentionParams good{};
  good.cache.num_kv_heads = 2;
  good.cache.head_dim = 8;
  good.cache.block_tokens = 16;
  good.num_q_heads = 4;
  EXPECT_EQ(LaunchPlainAttention(good, nullptr), cudaSuccess) << "no row, no work";
  good.num_rows = 1;
  for (const int head_dim : {0, 7, 258}) {
    PlainAttentionParams bad = good;
    bad.cache.head_dim = head_dim;
    EXPECT_EQ(LaunchPlainAttention(bad, nullptr), cudaErrorInvalidValue) << head_dim;
  }
  PlainAttentionParams bad = good;
  bad.num_q_heads = 5;
  EXPECT_EQ(LaunchPlainAttention(bad, nullptr), cudaErrorInvalidValue);
  bad = good;
  bad.cache.block_tokens = 12;
  EXPECT_EQ(LaunchPlainAttention(bad, nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace berth::cuda
