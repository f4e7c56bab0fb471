// Sixteen float lanes in two AVX2 registers. Included by files compiled for AVX2 + FMA alone; everything has internal
// linkage, so that no copy of it is ever called on a lesser machine.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace berth::cpu {
namespace {

constexpr int kLanes = 16;
constexpr int kScoreRows = 1;    // query rows scored together against transposed keys: 5 · 2 live registers
constexpr int kValueBlocks = 1;  // vectors of a value row accumulated together: 4 rows · 2 registers

struct Vec {
  __m256 lo;
  __m256 hi;
};

// float16 numbers, where std::uint16_t stands for bf16.
struct Halves {
  const std::uint16_t* bits;
};

inline Vec Set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline Vec LoadUpTo(const float* p, int n) {
  if (n >= kLanes) return Load(p);
  alignas(32) float lanes[kLanes] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return Load(lanes);
}
inline __m256 WidenBf16(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline Vec LoadUpTo(const std::uint16_t* p, int n) {
  alignas(32) std::uint16_t lanes[kLanes] = {};
  if (n < kLanes) {
    for (int i = 0; i < n; ++i) lanes[i] = p[i];
    p = lanes;
  }
  const auto* halves = reinterpret_cast<const __m128i*>(p);
  return {WidenBf16(_mm_loadu_si128(halves)), WidenBf16(_mm_loadu_si128(halves + 1))};
}
inline Vec LoadUpTo(Halves p, int n) {
  alignas(32) std::uint16_t lanes[kLanes] = {};
  if (n < kLanes) {
    for (int i = 0; i < n; ++i) lanes[i] = p.bits[i];
    p.bits = lanes;
  }
  const auto* halves = reinterpret_cast<const __m128i*>(p.bits);
  return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}
inline Vec LoadUpTo(const std::int8_t* p, int n) {
  alignas(16) std::int8_t lanes[kLanes] = {};
  if (n < kLanes) {
    for (int i = 0; i < n; ++i) lanes[i] = p[i];
    p = lanes;
  }
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
inline void Store(float* p, Vec x) {
  _mm256_storeu_ps(p, x.lo);
  _mm256_storeu_ps(p + 8, x.hi);
}
inline void StoreUpTo(float* p, Vec x, int n) {
  if (n >= kLanes) return Store(p, x);
  alignas(32) float lanes[kLanes];
  Store(lanes, x);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}

inline Vec Add(Vec a, Vec b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline Vec Sub(Vec a, Vec b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline Vec Mul(Vec a, Vec b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline Vec Div(Vec a, Vec b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline Vec Max(Vec a, Vec b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline Vec Fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
// The first n lanes of x, the others from `rest`.
inline Vec KeepFirst(Vec x, int n, Vec rest) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256 lo = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), index));
  const __m256 hi = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), index));
  return {_mm256_blendv_ps(rest.lo, x.lo, lo), _mm256_blendv_ps(rest.hi, x.hi, hi)};
}
// Lane by lane: a > b ? x : y.
inline Vec SelectGreater(Vec a, Vec b, Vec x, Vec y) {
  return {_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ)),
          _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ))};
}
inline float First(Vec x) { return _mm256_cvtss_f32(x.lo); }

inline __m256 PowerOfTwo(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

// e^x within 2 ulp: x = n · ln 2 + r with |r| ≤ ln 2 / 2, the Taylor series of e^r to r⁷ (its rest is below 1e-8),
// times 2ⁿ.
inline __m256 Exp(__m256 x) {
  // As max and min return their second operand when one is NaN, a NaN passes through.
  const __m256 clamped = _mm256_min_ps(_mm256_set1_ps(89.0F), _mm256_max_ps(_mm256_set1_ps(-104.0F), x));
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(clamped, _mm256_set1_ps(1.44269504F)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // ln 2 in two parts; n times the first, which has 9 significant bits, is exact.
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375F), clamped);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4F), r);
  __m256 p = _mm256_set1_ps(1.0F / 5040);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 720));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 120));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 24));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 6));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F));
  // 2ⁿ in two factors: n may lie outside what one exponent holds.
  const __m256i exponent = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(exponent, 1);
  return _mm256_mul_ps(_mm256_mul_ps(p, PowerOfTwo(half)), PowerOfTwo(_mm256_sub_epi32(exponent, half)));
}
inline Vec Exp(Vec x) { return {Exp(x.lo), Exp(x.hi)}; }

inline __m128 Quarters(Vec x) {
  const __m256 half = _mm256_add_ps(x.lo, x.hi);
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

// Lane j with j + 8, then j + 4, j + 2, j + 1: the one order in which lanes are summed.
inline float SumLanes(Vec x) {
  __m128 quarter = Quarters(x);
  quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_shuffle_ps(quarter, quarter, 1)));
}

inline float MaxLanes(Vec x) {
  const __m256 half = _mm256_max_ps(x.lo, x.hi);
  __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  quarter = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_max_ss(quarter, _mm_shuffle_ps(quarter, quarter, 1)));
}

// Lane i of the result is SumLanes(rows[i]): the 4 x 4 transpose of four rows' quarters, then 0 + 2 with 1 + 3.
inline Vec SumRows(const Vec* rows) {
  __m128 sums[4];
  for (int i = 0; i < 4; ++i) {
    __m128 q0 = Quarters(rows[4 * i]);
    __m128 q1 = Quarters(rows[4 * i + 1]);
    __m128 q2 = Quarters(rows[4 * i + 2]);
    __m128 q3 = Quarters(rows[4 * i + 3]);
    _MM_TRANSPOSE4_PS(q0, q1, q2, q3);
    sums[i] = _mm_add_ps(_mm_add_ps(q0, q2), _mm_add_ps(q1, q3));
  }
  return {_mm256_set_m128(sums[1], sums[0]), _mm256_set_m128(sums[3], sums[2])};
}

// out[j · 16 + i] = lane j of rows[i].
inline void StoreTransposed(const Vec* rows, float* out) {
  alignas(32) float lanes[kLanes * kLanes];
  for (int i = 0; i < kLanes; ++i) Store(lanes + i * kLanes, rows[i]);
  for (int j = 0; j < kLanes; ++j) {
    for (int i = 0; i < kLanes; ++i) out[j * kLanes + i] = lanes[i * kLanes + j];
  }
}

inline float SquareRoot(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

}  // namespace
}  // namespace berth::cpu
