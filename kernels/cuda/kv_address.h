// Where a position's key and value lie in the paged cache. Device code of the attention kernels.
#pragma once

#include <cstdint>

#include "kernels/gpu.h"
#include "kernels/params/kv_cache.h"

namespace berth::cuda {

// Of one sequence and KV head.
class KvAddress {
 public:
  // block_table: the sequence's.
  __device__ KvAddress(const KvCache& cache, const std::int32_t* block_table, int kv_head)
      : cache_(cache),
        block_table_(block_table),
        head_place_(static_cast<std::int64_t>(kv_head) * cache.block_tokens),
        token_mask_(cache.block_tokens - 1) {
    while (1 << block_shift_ < cache.block_tokens) ++block_shift_;
  }

  __device__ std::int32_t BlockOf(int position) const { return block_table_[position >> block_shift_]; }

  // The first element of its key and value, and its scales. `block`: BlockOf(position).
  __device__ std::int64_t Row(std::int32_t block, int position) const {
    return block * cache_.block_stride + Place(position) * cache_.head_dim;
  }
  __device__ std::int64_t Scale(std::int32_t block, int position) const {
    return block * cache_.scale_block_stride + Place(position);
  }

 private:
  __device__ std::int64_t Place(int position) const { return head_place_ + (position & token_mask_); }

  const KvCache& cache_;
  const std::int32_t* block_table_;
  std::int64_t head_place_;
  int token_mask_;
  int block_shift_ = 0;
};

}  // namespace berth::cuda
