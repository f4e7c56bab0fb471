#include "runner/cuda/step_arrays.h"

namespace berth {

StepCounts MostOf(const CudaShape& shape) {
  StepCounts counts;
  counts.tokens = shape.max_step_tokens;
  counts.rows = shape.max_rows;
  counts.prefill_rows = shape.max_rows;
  // No row has more than one tile that is not full.
  counts.tiles = cuda::PrefillTiles(shape.max_step_tokens, shape.heads, shape.kv_heads) + shape.max_rows;
  counts.chunks = shape.max_chunks;
  counts.logit_rows = shape.max_logit_rows;
  counts.carried = shape.max_rows;
  return counts;
}

StepArrays LayOutStep(const CudaShape& shape, const StepCounts& counts, MemoryLayout& layout) {
  const auto tokens = static_cast<std::size_t>(counts.tokens);
  const auto rows = static_cast<std::size_t>(counts.rows);
  const auto logit_rows = static_cast<std::size_t>(counts.logit_rows);
  const auto carried = static_cast<std::size_t>(counts.carried);
  StepArrays arrays;
  arrays.slots = layout.Take<std::int64_t>(tokens);
  arrays.positions = layout.Take<std::int32_t>(tokens);
  arrays.token_ids = layout.Take<std::int32_t>(tokens);
  arrays.block_tables = layout.Take<std::int32_t>(rows, static_cast<std::size_t>(shape.MaxBlocks(counts.chunks)));
  arrays.kv_lengths = layout.Take<std::int32_t>(rows);
  arrays.token_begins = layout.Take<std::int32_t>(static_cast<std::size_t>(counts.prefill_rows) + 1);
  arrays.tiles = layout.Take<cuda::PrefillTile>(static_cast<std::size_t>(counts.tiles));
  if (!shape.tuned_attention) {
    arrays.token_rows = layout.Take<std::int32_t>(tokens);
    arrays.token_lengths = layout.Take<std::int32_t>(tokens);
  }
  arrays.logit_tokens = layout.Take<std::int32_t>(logit_rows);
  arrays.sampling = layout.Take<cuda::SamplingRow>(logit_rows);
  arrays.carried_tokens = layout.Take<std::int32_t>(carried);
  arrays.carried_rows = layout.Take<std::int32_t>(carried);
  return arrays;
}

}  // namespace berth
