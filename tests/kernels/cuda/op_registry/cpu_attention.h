// The CPU backend's attention over the cache of a test of CUDA kernels.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/aligned_bytes.h"
#include "kernels/cpu/attention.h"
#include "kernels/cuda/paged_cache.h"

namespace berth::cuda {

// One query token: it attends to positions begin .. end - 1.
struct QueryRow {
  std::size_t sequence;
  int begin;
  int end;
};

struct AttentionShape {
  int num_q_heads;
  CacheShape cache;
  int window = 0;
};

// The CPU backend's kernels on the same cache: it has its scales as far apart as its codes.
class CpuAttention {
 public:
  CpuAttention(const AttentionShape& shape, const PagedCache& cache)
      : shape_(shape),
        cache_(cache),
        partials_{Numbers(), Numbers()},
        scratch_(cpu::AttentionScratchFloats(shape.cache.head_dim) * sizeof(float)) {
    const std::int64_t block_elements =
        std::int64_t{shape.cache.num_kv_heads} * shape.cache.block_tokens * shape.cache.head_dim;
    block_bytes_ = shape.cache.element == KvElement::kInt8 ? block_elements : 2 * block_elements;
    for (int side = 0; side < 2; ++side) {
      const std::vector<std::uint16_t>& scales = (side == 0 ? cache.keys() : cache.values()).scales;
      const std::size_t of_block = Size(shape.cache.num_kv_heads * shape.cache.block_tokens);
      const std::size_t blocks = scales.size() / of_block;
      scales_[side].assign(blocks * Size(block_bytes_) / 2 + of_block, 0xffff);
      for (std::size_t i = 0; i < scales.size(); ++i) {
        scales_[side][i / of_block * Size(block_bytes_) / 2 + i % of_block] = scales[i];
      }
    }
  }

  // The row's heads of one group; q and output: group · head_dim.
  void Attend(const QueryRow& row, int kv_head, const float* q, float* output) {
    const cpu::AttentionKernels& kernels = cpu::GetAttentionKernels(cpu::DetectCpuLevel());
    const cpu::AttentionTile tile = Tile(row, kv_head, q);
    const std::int32_t stride = cpu::AttentionStride(shape_.cache.head_dim);
    cpu::AttentionPartial partials[2];
    for (int i = 0; i < 2; ++i) {
      float* numbers = partials_[i].data();
      partials[i] = {numbers, numbers + tile.group, numbers + 2 * tile.group, stride};
    }
    for (int chunk = 0; chunk * cpu::kAttentionChunkTokens < row.end; ++chunk) {
      kernels.attend_chunk(tile, chunk, reinterpret_cast<float*>(scratch_.data()), partials[chunk == 0 ? 0 : 1]);
      if (chunk > 0) kernels.merge(tile.group, partials[1], partials[0]);
    }
    kernels.finish(tile, partials[0], output, std::int64_t{tile.group} * tile.head_dim);
  }

 private:
  int Group() const { return shape_.num_q_heads / shape_.cache.num_kv_heads; }
  std::vector<float> Numbers() const {
    return std::vector<float>(Size(Group()) * Size(cpu::AttentionStride(shape_.cache.head_dim) + 2));
  }

  cpu::AttentionTile Tile(const QueryRow& row, int kv_head, const float* q) const {
    const CacheShape& cache = shape_.cache;
    const std::int64_t head_row = std::int64_t{kv_head} * cache.block_tokens;
    const auto elements = [&](const PagedCache::Tensor& side) {
      const std::int64_t at = head_row * cache.head_dim;
      return cache.element == KvElement::kInt8 ? reinterpret_cast<const std::byte*>(side.codes.data() + at)
                                               : reinterpret_cast<const std::byte*>(side.bf16.data() + at);
    };
    cpu::AttentionTile tile;
    tile.q = q;
    tile.q_token_stride = std::int64_t{Group()} * cache.head_dim;
    tile.num_tokens = 1;
    tile.group = Group();
    tile.head_dim = cache.head_dim;
    tile.first_position = row.end - 1;
    tile.scale = 1.0f / std::sqrt(static_cast<float>(cache.head_dim));
    tile.element = cache.element == KvElement::kInt8 ? cpu::KvElement::kInt8 : cpu::KvElement::kBF16;
    tile.k = elements(cache_.keys());
    tile.v = elements(cache_.values());
    tile.k_scales = scales_[0].data() + head_row;
    tile.v_scales = scales_[1].data() + head_row;
    tile.block_bytes = block_bytes_;
    tile.block_ids = cache_.tables().data() + row.sequence * Size(cache_.max_blocks());
    tile.block_tokens = cache.block_tokens;
    return tile;
  }

  const AttentionShape& shape_;
  const PagedCache& cache_;
  std::int64_t block_bytes_;
  std::vector<std::uint16_t> scales_[2];
  std::vector<float> partials_[2];
  test::AlignedBytes scratch_;
};

}  // namespace berth::cuda
