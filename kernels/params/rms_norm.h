// What the RMSNorm kernel is given: no CUDA in here, so that whoever packs a step can fill it in.
#pragma once

#include <cstdint>

namespace berth::cuda {

// Each of num_tokens rows of hidden_size bfloat16: with a residual, x = input + residual, written to residual; without
// one, x = input. output = x / √(mean(x²) + epsilon) · weight (Zhang and Sennrich, arXiv:1910.07467), in float32 until
// it is stored.
//
// All pointers are to device memory, at multiples of 16 bytes. output may be input.
struct RmsNormParams {
  const std::uint16_t* input;   // [num_tokens, hidden_size]
  std::uint16_t* residual;      // [num_tokens, hidden_size], or null
  const std::uint16_t* weight;  // [hidden_size]
  std::uint16_t* output;        // [num_tokens, hidden_size]
  std::int32_t num_tokens;
  std::int32_t hidden_size;  // a multiple of 8, at most 16384
  float epsilon;
};

}  // namespace berth::cuda
