// Sixteen float lanes on any machine: plain loops. Included by the scalar kernels alone.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/half.h"

namespace berth::cpu {
namespace {

constexpr int kLanes = 16;
constexpr int kScoreRows = 1;    // query rows scored together against transposed keys
constexpr int kValueBlocks = 1;  // vectors of a value row accumulated together

struct Vec {
  float lane[kLanes];
};

// float16 numbers, where std::uint16_t stands for bf16.
struct Halves {
  const std::uint16_t* bits;
};

inline Vec Set1(float x) {
  Vec y;
  for (float& lane : y.lane) lane = x;
  return y;
}

inline Vec Load(const float* p) {
  Vec y;
  std::memcpy(y.lane, p, sizeof y.lane);
  return y;
}

inline Vec LoadUpTo(const float* p, int n) {
  Vec y;
  for (int i = 0; i < kLanes; ++i) y.lane[i] = i < n ? p[i] : 0.0F;
  return y;
}

inline Vec LoadUpTo(const std::uint16_t* p, int n) {
  Vec y;
  for (int i = 0; i < kLanes; ++i) y.lane[i] = i < n ? BFloat16ToFloat(p[i]) : 0.0F;
  return y;
}

inline Vec LoadUpTo(Halves p, int n) {
  Vec y;
  for (int i = 0; i < kLanes; ++i) y.lane[i] = i < n ? HalfToFloat(p.bits[i]) : 0.0F;
  return y;
}

inline Vec LoadUpTo(const std::int8_t* p, int n) {
  Vec y;
  for (int i = 0; i < kLanes; ++i) y.lane[i] = i < n ? static_cast<float>(p[i]) : 0.0F;
  return y;
}

inline void Store(float* p, Vec x) { std::memcpy(p, x.lane, sizeof x.lane); }

inline void StoreUpTo(float* p, Vec x, int n) {
  for (int i = 0; i < kLanes && i < n; ++i) p[i] = x.lane[i];
}

#define BERTH_LANEWISE(expression)                           \
  Vec y;                                                     \
  for (int i = 0; i < kLanes; ++i) y.lane[i] = (expression); \
  return y

inline Vec Add(Vec a, Vec b) { BERTH_LANEWISE(a.lane[i] + b.lane[i]); }
inline Vec Sub(Vec a, Vec b) { BERTH_LANEWISE(a.lane[i] - b.lane[i]); }
inline Vec Mul(Vec a, Vec b) { BERTH_LANEWISE(a.lane[i] * b.lane[i]); }
inline Vec Div(Vec a, Vec b) { BERTH_LANEWISE(a.lane[i] / b.lane[i]); }
inline Vec Max(Vec a, Vec b) { BERTH_LANEWISE(a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]); }
// a · b + c, rounded twice: a fused multiply-add without hardware is a slow library call.
inline Vec Fma(Vec a, Vec b, Vec c) { BERTH_LANEWISE(a.lane[i] * b.lane[i] + c.lane[i]); }
inline Vec Exp(Vec x) { BERTH_LANEWISE(std::exp(x.lane[i])); }
// The first n lanes of x, the others from `rest`.
inline Vec KeepFirst(Vec x, int n, Vec rest) { BERTH_LANEWISE(i < n ? x.lane[i] : rest.lane[i]); }
// Lane by lane: a > b ? x : y.
inline Vec SelectGreater(Vec a, Vec b, Vec x, Vec y) {
  Vec z;
  for (int i = 0; i < kLanes; ++i) z.lane[i] = a.lane[i] > b.lane[i] ? x.lane[i] : y.lane[i];
  return z;
}

#undef BERTH_LANEWISE

inline float First(Vec x) { return x.lane[0]; }

// Lane j with j + 8, then j + 4, j + 2, j + 1: the one order in which lanes are summed.
inline float SumLanes(Vec x) {
  for (int step = kLanes / 2; step >= 1; step /= 2) {
    for (int i = 0; i < step; ++i) x.lane[i] += x.lane[i + step];
  }
  return x.lane[0];
}

inline float MaxLanes(Vec x) {
  float y = x.lane[0];
  for (int i = 1; i < kLanes; ++i) y = y > x.lane[i] ? y : x.lane[i];
  return y;
}

// Lane i of the result is SumLanes(rows[i]).
inline Vec SumRows(const Vec* rows) {
  Vec y;
  for (int i = 0; i < kLanes; ++i) y.lane[i] = SumLanes(rows[i]);
  return y;
}

// out[j · 16 + i] = lane j of rows[i].
inline void StoreTransposed(const Vec* rows, float* out) {
  for (int i = 0; i < kLanes; ++i) {
    for (int j = 0; j < kLanes; ++j) out[j * kLanes + i] = rows[i].lane[j];
  }
}

inline float SquareRoot(float x) { return std::sqrt(x); }

}  // namespace
}  // namespace berth::cpu
