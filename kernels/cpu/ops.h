// The transformer's small operations on float rows. Each output row is one fixed sequence of operations on its input
// row.
//
// Raw pointers, no checks; thread-safe: no state. Bit-identical within one CpuLevel.
#pragma once

#include <cstdint>

#include "kernels/cpu/cpu_level.h"

namespace berth::cpu {

struct OpsKernels {
  // y = x / √(mean(x²) + epsilon) · weight (Zhang and Sennrich, arXiv:1910.07467). y may be x.
  void (*rms_norm)(const float* x, const float* weight, float epsilon, std::int32_t n, float* y);
  // Rotates the first 2 · pairs elements of each head by the angle whose cosine and sine each pair has (Su et al.,
  // arXiv:2104.09864): elements (2i, 2i + 1) ...
  void (*rope_adjacent)(float* x, std::int32_t heads, std::int32_t head_dim, std::int32_t pairs, const float* cosines,
                        const float* sines);
  // ... or (i, i + pairs).
  void (*rope_halves)(float* x, std::int32_t heads, std::int32_t head_dim, std::int32_t pairs, const float* cosines,
                      const float* sines);
  // y = gate · sigmoid(gate) · up (Shazeer, arXiv:2002.05202). y may be gate or up.
  void (*swiglu)(const float* gate, const float* up, std::int32_t n, float* y);
  // y += x
  void (*add)(const float* x, std::int32_t n, float* y);
  // Rounded to nearest, ties to even; a NaN stays one.
  void (*to_bf16)(const float* x, std::int32_t n, std::uint16_t* y);
  // x ≈ scale · code, codes from -127 to 127. The scale is a float16: max |x| / 127, at most 65504, rounded up, so that
  // |x - scale · code| ≤ scale / 2 where max |x| ≤ 127 · 65504. With an infinity or a NaN in x the scale is a NaN.
  void (*to_int8)(const float* x, std::int32_t n, std::int8_t* codes, std::uint16_t* scale);
  // The highest of x; minus infinity where none is above it. A NaN counts as minus infinity.
  float (*highest)(const float* x, std::int32_t n);
  // y = e^((x - highest) / temperature), within some 1e-6 of itself: exactly 1 where x is the highest, exactly 0 for a
  // NaN, minus infinity and what float32 has no number for. REQUIRES: highest = highest(x, n); temperature > 0.
  void (*exp_weights)(const float* x, std::int32_t n, float highest, float temperature, float* y);
};

// REQUIRES: level ≤ DetectCpuLevel().
const OpsKernels& GetOpsKernels(CpuLevel level);

}  // namespace berth::cpu
