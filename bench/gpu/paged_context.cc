#include "paged_context.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cuda/head_dims.h"

namespace berth::bench {

using cuda::KvCache;
using cuda::KvElement;

void RequireTunedHeadDim(const AttentionShape& shape) {
  if (cuda::IsTunedHeadDim(shape.head_dim)) return;
  throw CaseSkipped("heads of " + std::to_string(shape.head_dim) + " are not in this build (BERTH_CUDA_HEAD_DIMS)");
}

PagedContext MakeContext(const AttentionShape& shape, Arena& arena) {
  const std::int64_t blocks = std::int64_t{shape.sequences} * shape.blocks();
  const std::int64_t block_rows = std::int64_t{shape.kv_heads} * kBlockTokens;
  const std::int64_t elements = blocks * block_rows * shape.head_dim;
  KvCache cache{.keys = nullptr,
                .values = nullptr,
                .key_scales = nullptr,
                .value_scales = nullptr,
                .block_stride = block_rows * shape.head_dim,
                .scale_block_stride = block_rows,
                .num_kv_heads = shape.kv_heads,
                .head_dim = shape.head_dim,
                .block_tokens = kBlockTokens,
                .element = shape.element};
  if (shape.element == KvElement::kInt8) {
    cache.keys = arena.RandomBytes(elements);
    cache.values = arena.RandomBytes(elements);
    const std::vector<std::uint16_t> scales(1024, 0x2400);  // 1/64
    cache.key_scales = arena.Fill(blocks * block_rows, scales);
    cache.value_scales = arena.Fill(blocks * block_rows, scales);
  } else {
    cache.keys = arena.RandomBf16(elements);
    cache.values = arena.RandomBf16(elements);
  }
  std::vector<std::int32_t> tables(static_cast<std::size_t>(blocks));
  std::iota(tables.begin(), tables.end(), 0);
  std::shuffle(tables.begin(), tables.end(), std::minstd_rand(3));
  return {.cache = cache,
          .block_tables = arena.Upload(tables),
          .lengths = arena.Upload(std::vector<std::int32_t>(static_cast<std::size_t>(shape.sequences), shape.context))};
}

}  // namespace berth::bench
