// The 16-bit float types of model files, exactly widened. Not for the sources built for one instruction set: those must
// not emit inline functions that the linker could choose for everyone (see matmul_levels.h).
#pragma once

#include <bit>
#include <cstdint>

namespace berth::cpu {

// IEEE 754 binary16: every value, subnormal and infinite ones included, is a float32 value.
inline float HalfToFloat(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1Fu;
  const std::uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide_exponent = exponent == 0x1F ? 0xFFu : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (wide_exponent << 23) | (mantissa << 13));
}

// bfloat16 is the upper half of a float32.
inline float BFloat16ToFloat(std::uint16_t bf16) { return std::bit_cast<float>(std::uint32_t{bf16} << 16); }

}  // namespace berth::cpu
