// What decode attention over the paged cache is given: one query token per sequence.
#pragma once

#include <cstdint>

#include "kernels/params/kv_cache.h"

namespace berth::cuda {

// Query heads h · group .. h · group + group - 1 share KV head h.
//
// The arithmetic of a sequence depends on its own query and on K and V as stored, never on the others of the batch:
// positions are cut into chunks at multiples of chunk_tokens, each chunk is one sequence of operations, and chunks are
// merged in ascending order (the split of Flash-Decoding, with the log-sum-exp merge of FlashAttention, Dao et al.,
// arXiv:2205.14135).
struct PagedDecodeParams {
  const std::uint16_t* q;  // sequence s: q + s · q_stride, [num_q_heads, head_dim] bfloat16, multiples of 16 bytes
  std::int64_t q_stride;   // elements
  KvCache cache;           // block_tokens at least 2; head_dim 64, 80, 96, 128 or 256
  const std::int32_t* block_tables;  // [num_sequences, max_blocks]
  const std::int32_t* kv_lengths;    // [num_sequences]: positions attended; 0 gives zeros
  std::uint16_t* output;             // [num_sequences, num_q_heads, head_dim] bfloat16
  float* partials;                   // PagedDecodePartialFloats(*this)
  std::int32_t max_blocks;
  std::int32_t num_sequences;
  std::int32_t num_q_heads;
  std::int32_t chunk_tokens;  // a multiple of 64
  std::int32_t num_chunks;    // ≥ ⌈longest / chunk_tokens⌉
  float scale;                // of q · k
};

// Of a chunk: its unnormalised weighted sum of values, [head_dim], then its largest score times log2(e) and its sum of
// exponentials.
inline constexpr std::int32_t kPartialExtraFloats = 2;

// What partials must hold: for each sequence, query head and chunk one of them.
constexpr std::int64_t PagedDecodePartialFloats(const PagedDecodeParams& params) {
  return std::int64_t{params.num_sequences} * params.num_q_heads * params.num_chunks *
         (params.cache.head_dim + kPartialExtraFloats);
}

}  // namespace berth::cuda
