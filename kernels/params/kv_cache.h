// How a layer's keys and values lie in device memory.
#pragma once

#include <cstdint>

namespace berth::cuda {

// kInt8: codes from -127 to 127 and a float16 scale for each token and KV head, value ≈ scale · code; a scale is never
// revised.
enum class KvElement : std::uint8_t { kBf16, kInt8 };

// Of one layer. One head's tokens of a block are contiguous, so that a block is read in long runs: element d of token t
// of head h of block b is at keys + b · block_stride + (h · block_tokens + t) · head_dim + d in elements, its scale at
// key_scales + b · scale_block_stride + h · block_tokens + t. Blocks of several layers may interleave by the strides.
// Pointers and block_stride are multiples of 16 bytes, those of scales of 4.
struct KvCache {
  void* keys;
  void* values;
  std::uint16_t* key_scales;  // float16; kInt8 only
  std::uint16_t* value_scales;
  std::int64_t block_stride;        // elements
  std::int64_t scale_block_stride;  // scales
  std::int32_t num_kv_heads;
  std::int32_t head_dim;      // even, at most 256
  std::int32_t block_tokens;  // a power of two
  KvElement element;
};

}  // namespace berth::cuda
