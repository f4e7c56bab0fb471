// How weights are stored in model files, and what the stored bytes are worth.
//
// Layouts and formulas: GGUF's tensor types of the same names (all little-endian, blocks packed without padding).
// Raw pointers, no checks: the caller validates. Thread-safe: no state.
#pragma once

#include <cstddef>
#include <cstdint>

namespace berth::cpu {

// Row by row (one row = one output, K inputs).
enum class WeightFormat : std::uint8_t { kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ5_0, kQ8_0, kQ6_K };

// The unit that a row is made of: so many values in so many bytes.
struct WeightBlock {
  std::int32_t elements = 1;
  std::int32_t bytes = 0;
};

constexpr WeightBlock BlockOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return {1, 4};
    case WeightFormat::kF16:
      return {1, 2};
    case WeightFormat::kBF16:
      return {1, 2};
    case WeightFormat::kQ4_0:
      return {32, 2 + 16};  // d, codes
    case WeightFormat::kQ4_1:
      return {32, 2 + 2 + 16};  // d, m, codes
    case WeightFormat::kQ5_0:
      return {32, 2 + 4 + 16};  // d, fifth bits, codes
    case WeightFormat::kQ8_0:
      return {32, 2 + 32};  // d, codes
    case WeightFormat::kQ6_K:
      return {256, 128 + 64 + 16 + 2};  // low bits, high bits, scales, d
  }
  return {};
}

// Bytes of a row of k values. REQUIRES: k is a multiple of the format's block.
constexpr std::size_t RowBytes(WeightFormat format, std::int64_t k) {
  const WeightBlock block = BlockOf(format);
  return static_cast<std::size_t>(k / block.elements) * static_cast<std::size_t>(block.bytes);
}

// Values of `n` elements of a row: src is the row's first block (any alignment). n is a multiple of the format's block.
// Each value is its formula, rounded once to float32.
void Dequantize(WeightFormat format, const void* src, std::int64_t n, float* dst);

}  // namespace berth::cpu
