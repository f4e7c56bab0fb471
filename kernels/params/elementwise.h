// What the kernels that touch each element once are given. Pointers are to device memory, at multiples of 16 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace berth::cuda {

// What a gate goes through. kSilu: x · sigmoid(x). kGeluTanh: x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 · x³))), the
// approximation of GELU in Hendrycks and Gimpel, arXiv:1606.08415.
enum class Activation : std::uint8_t { kSilu, kGeluTanh };

// output = activation(gate) · up (Shazeer, arXiv:2002.05202), in float32 until it is stored.
struct GatedActivationParams {
  const std::uint16_t* gate_up;  // [num_tokens, 2 · size] bfloat16: a token's gates, then its ups
  std::uint16_t* output;         // [num_tokens, size]
  std::int32_t num_tokens;
  std::int32_t size;  // a multiple of 8
  Activation activation;
};

// Row token_ids[t] of the table for each token.
struct EmbeddingParams {
  const std::int32_t* token_ids;  // [num_tokens]
  const std::uint16_t* table;     // [vocabulary, hidden_size] bfloat16
  std::uint16_t* output;          // [num_tokens, hidden_size]
  std::int32_t num_tokens;
  std::int32_t hidden_size;  // a multiple of 8
};

// Blocks of a KV pool in each of its parts (a layer's keys, its values, their scales): part p's block b is at
// data + p · part_stride + b · block_stride. On the device, or pinned in the host's memory, which the device reaches
// as well.
struct BlockParts {
  std::byte* data;
  std::int64_t part_stride;  // bytes, as the rest; all are multiples of 16
  std::int64_t block_stride;
};

// Whole blocks from a pool to another or the same. No block is both a source and a destination.
struct BlockCopiesParams {
  const std::int32_t* from;  // [num_copies] block ids
  const std::int32_t* to;    // [num_copies]
  BlockParts source;
  BlockParts destination;
  std::int64_t part_bytes;
  std::int32_t num_parts;
  std::int32_t num_copies;
};

}  // namespace berth::cuda
