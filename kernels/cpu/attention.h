// Paged causal attention of one KV head for a few query tokens of one sequence.
//
// The arithmetic is fixed: the positions of a sequence are cut into chunks of 256 at absolute positions (from 0, from
// 256 and so on); each chunk gives a partial (largest score, sum of exponentials, weighted sum of values) in one order
// of operations; partials are merged by their maxima in ascending order. An int8 key's scale multiplies the sum of its
// codes' products with the query, an int8 value's scale the value's weight. A query token's result depends on its own
// query and on K and V as stored, never on the other tokens of the tile, the block ids or the thread.
//
// Raw pointers, no checks: the caller (src/runner) validates. Thread-safe: no state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/cpu_level.h"

namespace berth::cpu {

inline constexpr std::int32_t kAttentionChunkTokens = 256;
// Query rows (tokens · heads of the group) of a tile at most; a larger group is split by its heads.
inline constexpr std::int32_t kAttentionMaxRows = 48;
inline constexpr std::int32_t kAttentionMaxHeadDim = 256;  // a multiple of 16

// How a key's or value's elements are stored. kInt8: codes of one scale, a float16 that belongs to this token and KV
// head.
enum class KvElement : std::uint8_t { kF32, kBF16, kInt8 };

// Row r of a tile is head r % group of token r / group.
struct AttentionTile {
  const float* q = nullptr;         // token i, head h: q + i · q_token_stride + h · head_dim
  std::int64_t q_token_stride = 0;  // floats
  std::int32_t num_tokens = 0;      // num_tokens · group ≤ kAttentionMaxRows
  std::int32_t group = 0;           // query heads that share this KV head
  std::int32_t head_dim = 0;
  std::int32_t first_position = 0;  // token i attends positions 0 .. first_position + i
  float scale = 1.0F;               // of q · k
  KvElement element = KvElement::kF32;
  const std::byte* k = nullptr;  // this layer's keys at this KV head in block 0; tokens of a block lie head_dim apart
  const std::byte* v = nullptr;
  // kInt8: scales of block 0's keys and values at this KV head, one per token.
  const std::uint16_t* k_scales = nullptr;
  const std::uint16_t* v_scales = nullptr;
  std::int64_t block_bytes = 0;  // from a block's keys, values or scales to the next one's; whole elements and scales
  const std::int32_t* block_ids = nullptr;
  std::int32_t block_tokens = 0;  // a power of two ≤ 256
  // What will be attended after this chunk, whose first keys are fetched ahead; no tokens: nothing.
  struct Next {
    const std::byte* k = nullptr;  // as above
    const std::int32_t* block_ids = nullptr;
    std::int32_t first_position = 0;
    std::int32_t num_tokens = 0;
  } next;
};

// What attention over some positions gave: softmax(q · k) · v = acc / sum, with exponentials relative to max. A row
// that attends none of the positions has sum 0.
struct AttentionPartial {
  float* max = nullptr;     // [rows]
  float* sum = nullptr;     // [rows]
  float* acc = nullptr;     // [rows][stride]
  std::int32_t stride = 0;  // AttentionStride(head_dim)
};

// head_dim rounded up to whole vectors.
std::int32_t AttentionStride(std::int32_t head_dim);
// Floats that attend_chunk needs as scratch, 64-byte aligned.
std::size_t AttentionScratchFloats(std::int32_t head_dim);

struct AttentionKernels {
  // The partial of positions chunk · 256 .. chunk · 256 + 255, as far as each row attends them.
  // REQUIRES: the tile's last token attends at least one of them.
  void (*attend_chunk)(const AttentionTile& tile, std::int32_t chunk, float* scratch, const AttentionPartial& out);
  // Merges `next`, of later positions, into `state`, whose rows have all attended something.
  void (*merge)(std::int32_t rows, const AttentionPartial& next, const AttentionPartial& state);
  // Token i, head h of the tile: out + i · out_token_stride + h · head_dim = acc / sum.
  void (*finish)(const AttentionTile& tile, const AttentionPartial& state, float* out, std::int64_t out_token_stride);
};

// REQUIRES: level ≤ DetectCpuLevel().
const AttentionKernels& GetAttentionKernels(CpuLevel level);

}  // namespace berth::cpu
