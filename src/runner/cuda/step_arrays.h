// What the kernels of a step read besides weights and K and V: arrays in one run of bytes, laid out alike in the host's
// pinned memory and on the device, so that one copy brings them there.
#pragma once

#include <cstdint>

#include "kernels/params/paged_prefill.h"
#include "kernels/params/sampling.h"
#include "runner/cuda/cuda_shape.h"
#include "runner/memory_layout.h"

namespace berth {

// How much of everything a step has. Rows of one token come first, for decode attention; the others follow.
struct StepCounts {
  std::int32_t tokens = 0;
  std::int32_t rows = 0;
  std::int32_t prefill_rows = 0;  // of them
  std::int32_t tiles = 0;         // of prefill attention
  std::int32_t chunks = 1;        // of the longest row
  std::int32_t logit_rows = 0;
  std::int32_t carried = 0;

  std::int32_t decode_rows() const { return rows - prefill_rows; }
};

// The most that a step of this shape can have of each.
StepCounts MostOf(const CudaShape& shape);

struct StepArrays {
  std::int64_t* slots = nullptr;           // [tokens]; -1 where nothing is to be stored
  std::int32_t* positions = nullptr;       // [tokens]
  std::int32_t* token_ids = nullptr;       // [tokens]
  std::int32_t* block_tables = nullptr;    // [rows, MaxBlocks(chunks)]
  std::int32_t* kv_lengths = nullptr;      // [rows]
  std::int32_t* token_begins = nullptr;    // [prefill_rows + 1]
  cuda::PrefillTile* tiles = nullptr;      // [tiles]
  std::int32_t* token_rows = nullptr;      // [tokens]: of which row; only where attention is not tuned
  std::int32_t* token_lengths = nullptr;   // [tokens]: positions attended; only there as well
  std::int32_t* logit_tokens = nullptr;    // [logit_rows]
  cuda::SamplingRow* sampling = nullptr;   // [logit_rows]
  std::int32_t* carried_tokens = nullptr;  // [carried]
  std::int32_t* carried_rows = nullptr;    // [carried]
};

inline constexpr std::size_t kStepAlignment = 16;

// REQUIRES: a layout of kStepAlignment. What few steps have comes last: where the others lie does not depend on it.
StepArrays LayOutStep(const CudaShape& shape, const StepCounts& counts, MemoryLayout& layout);

}  // namespace berth
