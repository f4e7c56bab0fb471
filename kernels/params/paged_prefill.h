// What attention of prompt chunks over the paged cache is given: many query tokens of each sequence, whose K and V are
// in the cache already.
#pragma once

#include <cstdint>

#include "kernels/params/kv_cache.h"

namespace berth::cuda {

// The query rows of a tile share one sequence and one KV head. Row r of a sequence's part is query token r / group,
// query head kv_head · group + r % group, where group = num_q_heads / num_kv_heads: the heads of a group read the same
// K and V.
struct PrefillTile {
  std::int32_t sequence;
  std::int32_t first_row;  // a multiple of kPrefillTileRows
};
// As many rows as read each key tile together: fewer, and the reads from the L2 cache are the limit.
inline constexpr std::int32_t kPrefillTileRows = 128;

// Causal: query token i of n of a sequence stands at position p = kv_length - n + i and attends to positions
// max(0, p - window + 1) .. p; all of 0 .. p without a window. A chunk of a prompt is a sequence whose kv_length counts
// the tokens of earlier chunks.
//
// The arithmetic of a query row depends on its own query, its position and K and V as stored: keys come in tiles at
// multiples of the kernel's tile size, in ascending order, whatever the chunk they were computed in. Neither positions
// that no query token attends to are read nor their entries of the block table: their blocks may be gone.
struct PagedPrefillParams {
  const std::uint16_t* q;  // token t: q + t · q_stride, [num_q_heads, head_dim] bfloat16, multiples of 16 bytes
  std::int64_t q_stride;   // elements
  KvCache cache;           // block_tokens at least 2; head_dim 64, 80, 96, 128 or 256
  const std::int32_t* block_tables;  // [num_sequences, max_blocks]
  const std::int32_t* token_begins;  // [num_sequences + 1]: sequence s has the query tokens from token_begins[s] on
  const std::int32_t* kv_lengths;    // [num_sequences]: positions stored, the query tokens' own included
  const PrefillTile* tiles;          // [num_tiles]
  std::uint16_t* output;             // [tokens, num_q_heads, head_dim] bfloat16
  std::int32_t max_blocks;
  std::int32_t num_tiles;
  std::int32_t num_q_heads;
  std::int32_t window;  // 0: none
  float scale;          // of q · k; above 0
};

// Tiles of a sequence with so many query tokens.
constexpr std::int32_t PrefillTiles(std::int32_t query_tokens, std::int32_t num_q_heads, std::int32_t num_kv_heads) {
  const std::int32_t rows = query_tokens * (num_q_heads / num_kv_heads);
  return (rows + kPrefillTileRows - 1) / kPrefillTileRows;
}

}  // namespace berth::cuda
