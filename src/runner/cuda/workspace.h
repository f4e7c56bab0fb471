// What a step computes with on the device, besides weights and K and V: one block of memory, taken once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runner/cuda/cuda_shape.h"
#include "runner/memory_layout.h"

namespace berth {

struct CudaWorkspace {
  // [max_step_tokens, ...] bfloat16.
  std::uint16_t* residual = nullptr;   // [hidden]
  std::uint16_t* normed = nullptr;     // [hidden]
  std::uint16_t* update = nullptr;     // [hidden]: what is to be added to the residual
  std::uint16_t* qkv = nullptr;        // [qkv_width]
  std::uint16_t* attended = nullptr;   // [q_width]
  std::uint16_t* gate_up = nullptr;    // [2 · ffn]
  std::uint16_t* activated = nullptr;  // [ffn]

  // Of a group of logit rows: [logit_group_rows, ...].
  std::uint16_t* wanted_residual = nullptr;  // [hidden] bfloat16
  std::uint16_t* wanted_update = nullptr;
  float* logits = nullptr;  // [vocabulary]

  float* partials = nullptr;  // of decode attention: decode_rows_at_once rows of max_chunks chunks
  std::uint16_t* dequantized = nullptr;
  std::byte* gemm = nullptr;  // Gemms::kWorkspaceBytes

  std::byte* inputs = nullptr;  // StepArrays
  // For the sampler: [max_step_ids].
  std::int32_t* ids = nullptr;
  float* biases = nullptr;
  float* raw_logits = nullptr;

  // Results. A step of n logit rows has n tokens and right behind them n log-probabilities.
  std::int32_t* drawn = nullptr;    // [2 · max_logit_rows]
  std::int32_t* top_ids = nullptr;  // [max_logit_rows · max_top_logprobs]
  float* top_logprobs = nullptr;    // as many
};

// Bytes of a step's arrays at most.
std::size_t MostInputBytes(const CudaShape& shape);
// Entries of all top lists of a step at most.
std::size_t MostTopEntries(const CudaShape& shape);

CudaWorkspace LayOutWorkspace(const CudaShape& shape, std::int64_t dequantized_elements, MemoryLayout& layout);

}  // namespace berth
