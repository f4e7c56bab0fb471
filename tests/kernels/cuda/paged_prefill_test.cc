#include "kernels/cuda/paged_prefill.h"

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

struct PrefillShape {
  int num_q_heads;
  CacheShape cache;
  int window;
};

void PrintTo(const PrefillShape& shape, std::ostream* out) { *out << Name(shape.cache); }

// Query tokens at positions begin .. end - 1 of a sequence.
struct Chunk {
  std::size_t sequence;
  int begin;
  int end;
};

class PagedPrefill : public ::testing::TestWithParam<PrefillShape> {
 protected:
  void SetUp() override {
    BERTH_REQUIRE_DEVICE();
    if (!IsTunedHeadDim(GetParam().cache.head_dim)) GTEST_SKIP() << "not built for the head dimension";
  }

  float Scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.cache.head_dim)); }
  std::size_t TokenSize() const { return Size(shape_.num_q_heads) * Size(shape_.cache.head_dim); }
  int Begin(int position) const { return shape_.window > 0 ? std::max(0, position - shape_.window + 1) : 0; }

  // A token's queries: the same in whatever chunk it comes.
  std::vector<std::uint16_t> Queries(std::size_t sequence, int position) const {
    return RandomBf16(TokenSize(), static_cast<unsigned>(sequence * 1000 + Size(position)));
  }

  // A cache that holds what the chunks attend to and nothing else: NaN before it, behind it and in other blocks.
  PagedCache CacheOf(const std::vector<Chunk>& chunks) const {
    std::vector<StoredPositions> stored;
    for (const Chunk& chunk : chunks) {
      stored.resize(std::max(stored.size(), chunk.sequence + 1));
      stored[chunk.sequence] = {.begin = Begin(chunk.begin), .end = chunk.end};
    }
    return {shape_.cache, stored};
  }

  // The chunks' outputs, in their order. No sequence comes twice.
  std::vector<std::uint16_t> Run(const std::vector<Chunk>& chunks) const {
    const PagedCache cache = CacheOf(chunks);
    std::vector<std::uint16_t> queries;
    std::vector<std::int32_t> begins(1, 0);
    std::vector<std::int32_t> lengths;
    std::vector<PrefillTile> tiles;
    // Sequences in the order of the cache's tables: one that has no chunk has no token.
    for (std::size_t sequence = 0; sequence <= chunks.back().sequence; ++sequence) {
      const auto chunk =
          std::find_if(chunks.begin(), chunks.end(), [&](const Chunk& c) { return c.sequence == sequence; });
      const int tokens = chunk == chunks.end() ? 0 : chunk->end - chunk->begin;
      for (int i = 0; i < tokens; ++i) {
        const std::vector<std::uint16_t> token = Queries(sequence, chunk->begin + i);
        queries.insert(queries.end(), token.begin(), token.end());
        queries.resize(queries.size() + 8, 0xffff);  // rows lie apart
      }
      begins.push_back(begins.back() + tokens);
      lengths.push_back(chunk == chunks.end() ? 0 : chunk->end);
      for (int i = 0; i < PrefillTiles(tokens, shape_.num_q_heads, shape_.cache.num_kv_heads); ++i) {
        tiles.push_back({.sequence = static_cast<std::int32_t>(sequence), .first_row = i * kPrefillTileRows});
      }
    }
    const DeviceArray<std::uint16_t> q(queries);
    const DeviceArray<std::int32_t> token_begins(begins);
    const DeviceArray<std::int32_t> kv_lengths(lengths);
    const DeviceArray<PrefillTile> device_tiles(tiles);
    const DeviceArray<std::uint16_t> output(Size(begins.back()) * TokenSize());
    const PagedPrefillParams params{.q = q.data(),
                                    .q_stride = static_cast<std::int64_t>(TokenSize()) + 8,
                                    .cache = cache.OnDevice(),
                                    .block_tables = cache.device_tables(),
                                    .token_begins = token_begins.data(),
                                    .kv_lengths = kv_lengths.data(),
                                    .tiles = device_tiles.data(),
                                    .output = output.data(),
                                    .max_blocks = cache.max_blocks(),
                                    .num_tiles = static_cast<std::int32_t>(tiles.size()),
                                    .num_q_heads = shape_.num_q_heads,
                                    .window = shape_.window,
                                    .scale = Scale()};
    EXPECT_EQ(LaunchPagedPrefill(params, nullptr), cudaSuccess);
    return output.Read();
  }

  const PrefillShape& shape_ = GetParam();
};

TEST_P(PagedPrefill, ChunksOfAPromptAreBitForBitThePromptInOnePiece) {
  constexpr int kTokens = 140;
  const std::vector<std::uint16_t> whole = Run({{0, 0, kTokens}});
  std::vector<std::uint16_t> chunked;
  int begin = 0;
  for (const int end : {1, 34, 66, kTokens}) {
    const std::vector<std::uint16_t> part = Run({{0, begin, end}});
    chunked.insert(chunked.end(), part.begin(), part.end());
    begin = end;
  }
  EXPECT_EQ(chunked, whole);
}

TEST_P(PagedPrefill, ASequenceDoesNotDependOnItsBatch) {
  const std::vector<std::uint16_t> together = Run({{0, 0, 70}, {1, 3, 40}, {2, 64, 81}});
  const std::vector<std::uint16_t> alone = Run({{2, 64, 81}});
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.end() - static_cast<std::ptrdiff_t>(alone.size())));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, PagedPrefill,
    ::testing::Values(
        PrefillShape{6, {2, 64, 16, KvElement::kBf16}, 0}, PrefillShape{3, {1, 64, 16, KvElement::kInt8}, 0},
        PrefillShape{2, {1, 64, 4, KvElement::kBf16}, 30}, PrefillShape{2, {1, 64, 32, KvElement::kInt8}, 67},
        PrefillShape{1, {1, 80, 16, KvElement::kBf16}, 0}, PrefillShape{4, {1, 80, 32, KvElement::kInt8}, 0},
        PrefillShape{2, {1, 96, 8, KvElement::kBf16}, 0}, PrefillShape{2, {1, 96, 8, KvElement::kInt8}, 0},
        PrefillShape{3, {1, 128, 16, KvElement::kBf16}, 0}, PrefillShape{2, {1, 128, 64, KvElement::kInt8}, 33},
        PrefillShape{2, {1, 256, 16, KvElement::kBf16}, 0}, PrefillShape{1, {1, 256, 2, KvElement::kInt8}, 50}),
    [](const auto& row) { return Name(row.param.cache) + (row.param.window > 0 ? "Window" : ""); });

TEST(PagedPrefillLimits, AreRefusedBeforeTheLaunch) {
  BERTH_REQUIRE_DEVICE();
  PagedPrefillParams good{};
  good.cache.num_kv_heads = 2;
  good.cache.head_dim = 64;
  good.cache.block_tokens = 16;
  good.num_q_heads = 4;
  good.scale = 1.0f;
  EXPECT_EQ(LaunchPagedPrefill(good, nullptr), cudaSuccess) << "no tile, no work";
  good.num_tiles = 1;
  for (int head_dim = 8; head_dim <= 512; head_dim += 8) {
    if (IsTunedHeadDim(head_dim)) continue;
    PagedPrefillParams other = good;
    other.cache.head_dim = head_dim;
    EXPECT_EQ(LaunchPagedPrefill(other, nullptr), cudaErrorInvalidValue) << head_dim;
  }
  PagedPrefillParams bad = good;
  bad.num_q_heads = 5;
  EXPECT_EQ(LaunchPagedPrefill(bad, nullptr), cudaErrorInvalidValue);
  bad = good;
  bad.cache.block_tokens = 1;
  EXPECT_EQ(LaunchPagedPrefill(bad, nullptr), cudaErrorInvalidValue);
  bad = good;
  bad.scale = 0.0f;
  EXPECT_EQ(LaunchPagedPrefill(bad, nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace berth::cuda
