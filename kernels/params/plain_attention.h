// What attention without tensor cores is given, for the head dimensions that the others are not made for.
#pragma once

#include <cstdint>

#include "kernels/params/kv_cache.h"

namespace berth::cuda {

// One query token per row, decode and prefill alike: row r attends to positions
// max(0, kv_lengths[r] - window) .. kv_lengths[r] - 1 of its sequence, by one sequence of operations that depends on
// its own query and on K and V as stored.
struct PlainAttentionParams {
  const std::uint16_t* q;            // row r: q + r · q_stride, [num_q_heads, head_dim] bfloat16, multiples of 4 bytes
  std::int64_t q_stride;             // elements
  KvCache cache;                     // head_dim even, at most 256
  const std::int32_t* block_tables;  // [sequences, max_blocks]
  const std::int32_t* sequences;     // [num_rows]: the row's table
  const std::int32_t* kv_lengths;    // [num_rows]: 0 gives zeros
  std::uint16_t* output;             // [num_rows, num_q_heads, head_dim] bfloat16
  std::int32_t max_blocks;
  std::int32_t num_rows;
  std::int32_t num_q_heads;
  std::int32_t window;  // 0: none
  float scale;          // of q · k
};

}  // namespace berth::cuda
