// What the kernel between the QKV projection and attention is given.
#pragma once

#include <cstdint>

#include "kernels/params/kv_cache.h"

namespace berth::cuda {

// Which two elements of a head rotate together: 2i and 2i + 1, or i and i + rotary_pairs.
enum class RopePairs : std::uint8_t { kAdjacent, kHalves };

// Rotates the first 2 · rotary_pairs elements of each query and key head by its token's position (Su et al.,
// arXiv:2104.09864), in float32. Queries stay where they are, rounded to bfloat16; keys and values go into the cache,
// each to its token's slot, and nowhere where that is negative: a row that only fills a batch. An int8 scale is max |x|
// / 127 rounded up to float16, at most 65504, so that |x - scale · code| ≤ scale / 2; it is a NaN where x holds a NaN
// or an infinity.
struct RopeKvWriteParams {
  // [num_tokens, (num_q_heads + 2 · num_kv_heads) · head_dim] bfloat16: all query heads of a token, its key heads, its
  // value heads. A multiple of 4 bytes.
  std::uint16_t* qkv;
  const std::int32_t* positions;  // [num_tokens]
  const std::int64_t* slots;      // [num_tokens]: block id · block_tokens + place in the block
  // [positions, rotary_pairs] cosine and sine of each pair's angle.
  const float* cosines;
  const float* sines;
  KvCache cache;
  std::int32_t num_tokens;
  std::int32_t num_q_heads;
  std::int32_t rotary_pairs;  // even, at most head_dim / 2
  RopePairs pairs;
};

}  // namespace berth::cuda
