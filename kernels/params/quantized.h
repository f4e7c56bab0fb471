// Quantised weight matrices on the device: the codes of the model file, laid out for coalesced reads, and what is done
// with them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace berth::cuda {

// GGUF's types of these names: value = scale · (code - 8), scale · code + minimum, scale · code, and in Q6_K
// scale · sub_scale · (code - 32) for every 16 values.
enum class QuantizedType : std::uint8_t { kQ4_0, kQ4_1, kQ8_0, kQ6_K };

// [rows = outputs, cols = inputs]. How codes and scales lie is known to kernels/cuda/quantized_layout.h alone.
struct QuantizedMatrix {
  const std::byte* data;  // QuantizedBytes(type, rows, cols), at a multiple of 256 bytes
  std::int32_t rows;
  std::int32_t cols;  // a multiple of 32, of 256 for kQ6_K; at most 65535 · 256
  QuantizedType type;
};

// The matrix as bfloat16, each value its formula in float32 rounded once: for products of many tokens.
struct DequantizeParams {
  QuantizedMatrix matrix;
  std::uint16_t* output;  // [rows, cols]
};

// output[t, r] = Σ input[t, c] · matrix[r, c], summed in float32 in an order that depends on the matrix's shape alone:
// for products of few tokens, where reading the weights is what takes time.
struct QuantizedMatmulParams {
  QuantizedMatrix matrix;
  const std::uint16_t* input;  // token t: input + t · cols, bfloat16
  void* output;                // token t from t · output_stride on: bfloat16, or float32
  std::int64_t output_stride;  // elements
  std::int32_t num_tokens;     // at most kQuantizedMatmulTokens
  bool output_is_float;
};
inline constexpr std::int32_t kQuantizedMatmulTokens = 16;

}  // namespace berth::cuda
