#include "kernels/cuda/paged_decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <random>
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
  int block_tokens;
  KvElement element;
  std::vector<int> lengths;
};

std::string Name(const Shape& shape) {
  return "Dim" + std::to_string(shape.head_dim) + (shape.element == KvElement::kInt8 ? "Int8" : "Bf16");
}

void PrintTo(const Shape& shape, std::ostream* out) { *out << Name(shape); }

std::size_t Size(std::int64_t size) { return static_cast<std::size_t>(size); }

// A cache whose blocks lie in a random order, with NaN wherever no token was stored.
class PagedData {
 public:
  explicit PagedData(const Shape& shape) : shape_(shape) {
    const int longest = *std::max_element(shape.lengths.begin(), shape.lengths.end());
    max_blocks_ = longest / shape.block_tokens + 2;
    const int num_blocks = static_cast<int>(shape.lengths.size()) * max_blocks_;
    for (int block = 0; block < num_blocks; ++block) tables_.push_back(block);
    std::mt19937 generator(5);
    std::shuffle(tables_.begin(), tables_.end(), generator);
    const std::int64_t rows = std::int64_t{num_blocks} * shape.num_kv_heads * shape.block_tokens;
    std::normal_distribution<float> normal;
    const std::int64_t elements = rows * shape.head_dim;
    for (Tensor* tensor : {&keys_, &values_}) {
      tensor->bf16.assign(Size(elements), 0xffff);
      tensor->codes.assign(Size(elements), 127);
      tensor->scales.assign(Size(rows), 0xffff);
    }
    for (std::size_t sequence = 0; sequence < shape.lengths.size(); ++sequence) {
      for (int position = 0; position < shape.lengths[sequence]; ++position) {
        for (int head = 0; head < shape.num_kv_heads; ++head) {
          const std::size_t row = Row(sequence, position, head);
          for (Tensor* tensor : {&keys_, &values_}) {
            constexpr std::uint16_t kHalfs[] = {0x2400, 0x2555, 0x2200};  // float16 near 1/64
            tensor->scales[row] = kHalfs[generator() % 3];
            for (int i = 0; i < shape.head_dim; ++i) {
              tensor->bf16[row * Size(shape.head_dim) + Size(i)] = ToBf16(normal(generator));
              tensor->codes[row * Size(shape.head_dim) + Size(i)] = static_cast<std::int8_t>(generator() % 255 - 127);
            }
          }
        }
      }
    }
    q_ = RandomBf16(shape.lengths.size() * Size(shape.num_q_heads) * Size(shape.head_dim), 6);
  }

  // softmax(q · k · scale) · v in float64.
  std::vector<double> Expected(std::size_t sequence, int q_head, double scale) const {
    const int kv_head = q_head / (shape_.num_q_heads / shape_.num_kv_heads);
    const std::uint16_t* q = q_.data() + (sequence * Size(shape_.num_q_heads) + Size(q_head)) * Size(shape_.head_dim);
    std::vector<double> scores;
    for (int position = 0; position < shape_.lengths[sequence]; ++position) {
      double score = 0;
      const std::size_t row = Row(sequence, position, kv_head);
      for (int i = 0; i < shape_.head_dim; ++i) score += FromBf16(q[i]) * Value(keys_, row, i);
      scores.push_back(score * scale);
    }
    std::vector<double> result(Size(shape_.head_dim), 0.0);
    if (scores.empty()) return result;
    const double highest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (int position = 0; position < shape_.lengths[sequence]; ++position) {
      const double weight = std::exp(scores[Size(position)] - highest);
      sum += weight;
      const std::size_t row = Row(sequence, position, kv_head);
      for (int i = 0; i < shape_.head_dim; ++i) result[Size(i)] += weight * Value(values_, row, i);
    }
    for (double& value : result) value /= sum;
    return result;
  }

  // The result of the sequences from `first` on, `count` of them.
  std::vector<std::uint16_t> Run(std::size_t first, std::size_t count, int chunk_tokens, int num_chunks,
                                 float scale) const {
    const bool int8 = shape_.element == KvElement::kInt8;
    const DeviceArray<std::uint16_t> keys(keys_.bf16);
    const DeviceArray<std::uint16_t> values(values_.bf16);
    const DeviceArray<std::int8_t> key_codes(keys_.codes);
    const DeviceArray<std::int8_t> value_codes(values_.codes);
    const DeviceArray<std::uint16_t> key_scales(keys_.scales);
    const DeviceArray<std::uint16_t> value_scales(values_.scales);
    const DeviceArray<std::uint16_t> q(q_);
    const DeviceArray<std::int32_t> tables(tables_);
    const DeviceArray<std::int32_t> lengths(std::vector<std::int32_t>(shape_.lengths.begin(), shape_.lengths.end()));
    const std::int64_t q_stride = std::int64_t{shape_.num_q_heads} * shape_.head_dim;
    const DeviceArray<std::uint16_t> output(count * Size(q_stride));
    const std::int64_t block_rows = std::int64_t{shape_.num_kv_heads} * shape_.block_tokens;
    PagedDecodeParams params{.q = q.data() + first * Size(q_stride),
                             .q_stride = q_stride,
                             .cache = {.keys = int8 ? static_cast<void*>(key_codes.data()) : keys.data(),
                                       .values = int8 ? static_cast<void*>(value_codes.data()) : values.data(),
                                       .key_scales = key_scales.data(),
                                       .value_scales = value_scales.data(),
                                       .block_stride = block_rows * shape_.head_dim,
                                       .scale_block_stride = block_rows,
                                       .num_kv_heads = shape_.num_kv_heads,
                                       .head_dim = shape_.head_dim,
                                       .block_tokens = shape_.block_tokens,
                                       .element = shape_.element},
                             .block_tables = tables.data() + first * Size(max_blocks_),
                             .kv_lengths = lengths.data() + first,
                             .output = output.data(),
                             .partials = nullptr,
                             .max_blocks = max_blocks_,
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
  struct Tensor {
    std::vector<std::uint16_t> bf16;
    std::vector<std::int8_t> codes;
    std::vector<std::uint16_t> scales;
  };

  std::size_t Row(std::size_t sequence, int position, int head) const {
    const int block = tables_[sequence * Size(max_blocks_) + Size(position / shape_.block_tokens)];
    return Size((block * shape_.num_kv_heads + head) * shape_.block_tokens + position % shape_.block_tokens);
  }
  double Value(const Tensor& tensor, std::size_t row, int i) const {
    const std::size_t at = row * Size(shape_.head_dim) + Size(i);
    if (shape_.element == KvElement::kBf16) return FromBf16(tensor.bf16[at]);
    return double{cpu::HalfToFloat(tensor.scales[row])} * tensor.codes[at];
  }

  Shape shape_;
  int max_blocks_ = 0;
  std::vector<std::int32_t> tables_;
  Tensor keys_;
  Tensor values_;
  std::vector<std::uint16_t> q_;
};

class PagedDecode : public ::testing::TestWithParam<Shape> {
 protected:
  void SetUp() override { BERTH_REQUIRE_DEVICE(); }
  float Scale() const { return 1.0f / std::sqrt(static_cast<float>(GetParam().head_dim)); }
};

TEST_P(PagedDecode, IsSoftmaxAttentionOverTheStoredPositions) {
  const Shape& shape = GetParam();
  const PagedData data(shape);
  for (const int chunk_tokens : {64, 512}) {
    const std::vector<std::uint16_t> output = data.Run(0, shape.lengths.size(), chunk_tokens, 6, Scale());
    for (std::size_t sequence = 0; sequence < shape.lengths.size(); ++sequence) {
      for (int head = 0; head < shape.num_q_heads; ++head) {
        const std::vector<double> expected = data.Expected(sequence, head, Scale());
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const std::size_t at = (sequence * Size(shape.num_q_heads) + Size(head)) * Size(shape.head_dim) + i;
          // Weights are rounded to bfloat16, each on its own.
          ASSERT_NEAR(FromBf16(output[at]), expected[i], Bf16Unit(expected[i]) + 8e-3)
              << "sequence " << sequence << ", head " << head << ", element " << i << ", chunks of " << chunk_tokens;
        }
      }
    }
  }
}

TEST_P(PagedDecode, ASequenceDoesNotDependOnItsBatch) {
  const Shape& shape = GetParam();
  const PagedData data(shape);
  const std::vector<std::uint16_t> together = data.Run(0, shape.lengths.size(), 64, 6, Scale());
  const std::size_t last = shape.lengths.size() - 1;
  const int chunks = std::max(1, (shape.lengths[last] + 63) / 64);
  const std::vector<std::uint16_t> alone = data.Run(last, 1, 64, chunks, Scale());
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.end() - static_cast<std::ptrdiff_t>(alone.size())));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, PagedDecode,
    ::testing::Values(Shape{9, 3, 64, 16, KvElement::kBf16, {1, 0, 64, 200, 333}},
                      Shape{9, 3, 64, 16, KvElement::kInt8, {17, 63, 200}},
                      Shape{4, 4, 80, 16, KvElement::kBf16, {65, 31}}, Shape{4, 1, 80, 32, KvElement::kInt8, {65, 31}},
                      Shape{4, 2, 96, 8, KvElement::kBf16, {130, 15}}, Shape{4, 2, 96, 8, KvElement::kInt8, {130, 15}},
                      Shape{20, 1, 128, 16, KvElement::kBf16, {100, 16}},  // more heads than a tile has rows
                      Shape{8, 1, 128, 64, KvElement::kInt8, {100, 16}},
                      Shape{2, 1, 256, 16, KvElement::kBf16, {70, 129}},
                      Shape{2, 1, 256, 16, KvElement::kInt8, {70, 129}}),
    [](const auto& row) { return Name(row.param); });

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
  PagedDecodeParams bad = good;
  bad.cache.head_dim = 72;
  EXPECT_EQ(LaunchPagedDecode(bad, nullptr), cudaErrorInvalidValue);
  bad = good;
  bad.num_q_heads = 5;
  EXPECT_EQ(LaunchPagedDecode(bad, nullptr), cudaErrorInvalidValue);
  bad = good;
  bad.chunk_tokens = 96;
  EXPECT_EQ(LaunchPagedDecode(bad, nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace berth::cuda
