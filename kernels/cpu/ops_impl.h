// The small operations over the Vec of the including file's instruction set (simd/vec_*.h, included before this).
// Internal linkage throughout: see there.
#pragma once

#include <cstdint>

#include "kernels/cpu/ops.h"

namespace berth::cpu {
namespace {

void RmsNorm(const float* x, const float* weight, float epsilon, std::int32_t n, float* y) {
  Vec squares = Set1(0.0F);
  for (int i = 0; i < n; i += kLanes) {
    const Vec part = LoadUpTo(x + i, n - i);
    squares = Fma(part, part, squares);
  }
  const float mean = SumLanes(squares) / static_cast<float>(n);
  const Vec scale = Set1(1.0F / SquareRoot(mean + epsilon));
  for (int i = 0; i < n; i += kLanes) {
    StoreUpTo(y + i, Mul(Mul(LoadUpTo(x + i, n - i), scale), LoadUpTo(weight + i, n - i)), n - i);
  }
}

void RopeAdjacent(float* x, std::int32_t heads, std::int32_t head_dim, std::int32_t pairs, const float* cosines,
                  const float* sines) {
  for (int h = 0; h < heads; ++h, x += head_dim) {
    for (int i = 0; i < pairs; ++i) {
      const float a = x[2 * i];
      const float b = x[2 * i + 1];
      x[2 * i] = a * cosines[i] - b * sines[i];
      x[2 * i + 1] = a * sines[i] + b * cosines[i];
    }
  }
}

void RopeHalves(float* x, std::int32_t heads, std::int32_t head_dim, std::int32_t pairs, const float* cosines,
                const float* sines) {
  for (int h = 0; h < heads; ++h, x += head_dim) {
    for (int i = 0; i < pairs; ++i) {
      const float a = x[i];
      const float b = x[i + pairs];
      x[i] = a * cosines[i] - b * sines[i];
      x[i + pairs] = a * sines[i] + b * cosines[i];
    }
  }
}

void SwiGlu(const float* gate, const float* up, std::int32_t n, float* y) {
  const Vec one = Set1(1.0F);
  const Vec zero = Set1(0.0F);
  for (int i = 0; i < n; i += kLanes) {
    const Vec g = LoadUpTo(gate + i, n - i);
    const Vec silu = Div(g, Add(one, Exp(Sub(zero, g))));
    StoreUpTo(y + i, Mul(silu, LoadUpTo(up + i, n - i)), n - i);
  }
}

void AddRow(const float* x, std::int32_t n, float* y) {
  for (int i = 0; i < n; ++i) y[i] += x[i];
}

inline std::uint32_t BitsOf(float x) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}

inline float FloatOf(std::uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

void ToBf16(const float* x, std::int32_t n, std::uint16_t* y) {
  for (int i = 0; i < n; ++i) {
    const std::uint32_t bits = BitsOf(x[i]);
    const std::uint32_t rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
    const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
    y[i] = static_cast<std::uint16_t>((is_nan ? bits | 0x400000U : rounded) >> 16);
  }
}

// The least float16 that is not below x. REQUIRES: 0 ≤ x ≤ 65504.
inline std::uint16_t ToHalfRoundedUp(float x) {
  const std::uint32_t bits = BitsOf(x);
  if (x >= 0x1p-14F) return static_cast<std::uint16_t>((bits - (112U << 23) + 0x1FFFU) >> 13);
  const float units = x * 0x1p24F;  // of the subnormals; exact
  const auto whole = static_cast<std::uint32_t>(units);
  return static_cast<std::uint16_t>(static_cast<float>(whole) < units ? whole + 1 : whole);
}

void ToInt8(const float* x, std::int32_t n, std::int8_t* codes, std::uint16_t* scale) {
  // Magnitudes compared as bit patterns: an infinity or a NaN is then the largest instead of being lost.
  std::uint32_t max_bits = 0;
  for (int i = 0; i < n; ++i) {
    const std::uint32_t magnitude = BitsOf(x[i]) & 0x7FFFFFFFU;
    max_bits = magnitude > max_bits ? magnitude : max_bits;
  }
  const float wanted = FloatOf(max_bits) / 127.0F;
  if (max_bits >= 0x7F800000U || max_bits == 0) {
    *scale = max_bits == 0 ? 0 : 0x7E00U;
    for (int i = 0; i < n; ++i) codes[i] = 0;
    return;
  }
  *scale = ToHalfRoundedUp(wanted < 65504.0F ? wanted : 65504.0F);
  const float inverse = 1.0F / First(LoadUpTo(Halves{scale}, 1));
  for (int i = 0; i < n; ++i) {
    float code = x[i] * inverse;
    code = code > 127.0F ? 127.0F : code;
    code = code < -127.0F ? -127.0F : code;
    // Adding 1.5 · 2²³ rounds to the nearest integer, ties to even, and leaves it in the lowest bits.
    codes[i] = static_cast<std::int8_t>(BitsOf(code + 12582912.0F));
  }
}

float Highest(const float* x, std::int32_t n) {
  // Max returns its second operand where one is a NaN: the highest so far.
  const Vec nothing = Set1(-__builtin_inff());
  Vec highest[4] = {nothing, nothing, nothing, nothing};
  int i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) highest[j] = Max(Load(x + i + j * kLanes), highest[j]);
  }
  for (; i < n; i += kLanes) highest[0] = Max(KeepFirst(LoadUpTo(x + i, n - i), n - i, nothing), highest[0]);
  return MaxLanes(Max(Max(highest[0], highest[1]), Max(highest[2], highest[3])));
}

void ExpWeights(const float* x, std::int32_t n, float highest, float temperature, float* y) {
  const Vec zero = Set1(0.0F);
  for (int i = 0; i < n; i += kLanes) {
    const Vec part = LoadUpTo(x + i, n - i);
    const Vec exponent = Div(Sub(part, Set1(highest)), Set1(temperature));
    // Where both are infinite the exponent is a NaN: then, as for every highest, the weight is 1.
    const Vec weight = SelectGreater(exponent, Set1(-103.0F), Exp(exponent), zero);
    const Vec capped = SelectGreater(Set1(highest), part, weight, Set1(1.0F));
    StoreUpTo(y + i, SelectGreater(part, Set1(-__builtin_inff()), capped, zero), n - i);
  }
}

constexpr OpsKernels kOpsKernels = {RmsNorm, RopeAdjacent, RopeHalves, SwiGlu,    AddRow,
                                    ToBf16,  ToInt8,       Highest,    ExpWeights};

}  // namespace
}  // namespace berth::cpu
