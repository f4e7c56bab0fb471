// Where a position's key and value lie in the paged cache. Device code of the attention kernels.
#pragma once

#include <cstdint>

#include "kernels/gpu.h"
#include "kernels/params/kv_cache.h"

namespace berth::cuda {

// Of one sequence and KV head.
struct KvAddress {
  const std::int32_t* block_table;  // the sequence's
  int head_place;                   // of the head's first token in a block
  int block_shift;

  __device__ KvAddress(const KvCache& cache, const std::int32_t* table, int kv_head)
      : block_table(table), head_place(kv_head * cache.block_tokens), block_shift(0) {
    while (1 << block_shift < cache.block_tokens) ++block_shift;
  }

  __device__ std::int32_t BlockOf(int position) const { return block_table[position >> block_shift]; }

  // The first element of its key and value, and its scales. `block`: BlockOf(position).
  __device__ std::int64_t Row(const KvCache& cache, std::int32_t block, int position) const {
    return block * cache.block_stride + static_cast<std::int64_t>(Place(cache, position)) * cache.head_dim;
  }
  __device__ std::int64_t Scale(const KvCache& cache, std::int32_t block, int position) const {
    return block * cache.scale_block_stride + Place(cache, position);
  }

 private:
  __device__ int Place(const KvCache& cache, int position) const {
    return head_place + (position & (cache.block_tokens - 1));
  }
};

}  // namespace berth::cuda
