// Sixteen float lanes in one AVX-512 register. Included by files compiled for AVX-512 alone; everything has internal
// linkage, so that no copy of it is ever called on a lesser machine.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace berth::cpu {
namespace {

constexpr int kLanes = 16;
constexpr int kScoreRows = 4;    // query rows scored together against transposed keys: 4 · 5 live registers
constexpr int kValueBlocks = 4;  // vectors of a value row accumulated together: 4 rows · 4 registers

struct Vec {
  __m512 v;
};

// float16 numbers, where std::uint16_t stands for bf16.
struct Halves {
  const std::uint16_t* bits;
};

inline __mmask16 FirstLanes(int n) {
  return n >= kLanes ? __mmask16(0xFFFF) : n <= 0 ? __mmask16(0) : __mmask16((1U << n) - 1U);
}

inline Vec Set1(float x) { return {_mm512_set1_ps(x)}; }
inline Vec Load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline Vec LoadUpTo(const float* p, int n) {
  return n >= kLanes ? Load(p) : Vec{_mm512_maskz_loadu_ps(FirstLanes(n), p)};
}
inline Vec LoadUpTo(const std::uint16_t* p, int n) {
  const __m256i bits = n >= kLanes ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))
                                   : _mm256_maskz_loadu_epi16(FirstLanes(n), p);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
inline Vec LoadUpTo(Halves p, int n) {
  return {_mm512_cvtph_ps(n >= kLanes ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p.bits))
                                      : _mm256_maskz_loadu_epi16(FirstLanes(n), p.bits))};
}
inline Vec LoadUpTo(const std::int8_t* p, int n) {
  const __m128i bytes =
      n >= kLanes ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)) : _mm_maskz_loadu_epi8(FirstLanes(n), p);
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}
inline void Store(float* p, Vec x) { _mm512_storeu_ps(p, x.v); }
inline void StoreUpTo(float* p, Vec x, int n) { _mm512_mask_storeu_ps(p, FirstLanes(n), x.v); }

inline Vec Add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec Sub(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec Mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec Div(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Vec Max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Vec Fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// The first n lanes of x, the others from `rest`.
inline Vec KeepFirst(Vec x, int n, Vec rest) { return {_mm512_mask_mov_ps(rest.v, FirstLanes(n), x.v)}; }
// Lane by lane: a > b ? x : y.
inline Vec SelectGreater(Vec a, Vec b, Vec x, Vec y) {
  return {_mm512_mask_mov_ps(y.v, _mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ), x.v)};
}
inline float First(Vec x) { return _mm512_cvtss_f32(x.v); }

// e^x within 2 ulp: x = n · ln 2 + r with |r| ≤ ln 2 / 2, the Taylor series of e^r to r⁷ (its rest is below 1e-8),
// times 2ⁿ.
inline Vec Exp(Vec x) {
  // As max and min return their second operand when one is NaN, a NaN passes through.
  const __m512 clamped = _mm512_min_ps(_mm512_set1_ps(89.0F), _mm512_max_ps(_mm512_set1_ps(-104.0F), x.v));
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(clamped, _mm512_set1_ps(1.44269504F)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // ln 2 in two parts; n times the first, which has 9 significant bits, is exact.
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375F), clamped);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4F), r);
  __m512 p = _mm512_set1_ps(1.0F / 5040);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 720));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 120));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 24));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 6));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F));
  return {_mm512_scalef_ps(p, n)};
}

// Lane j with j + 8, then j + 4, j + 2, j + 1: the one order in which lanes are summed.
inline float SumLanes(Vec x) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_shuffle_ps(quarter, quarter, 1)));
}

inline float MaxLanes(Vec x) { return _mm512_reduce_max_ps(x.v); }

// Lane i of the result is SumLanes(rows[i]). Each step adds two halves of two vectors at once; rows are paired so that
// the sums end up in order.
inline Vec SumRows(const Vec* rows) {
  const auto halves = [](__m512 a, __m512 b) {  // [a.lo + a.hi | b.lo + b.hi], by 8 lanes
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
  };
  const auto quarters = [](__m512 a, __m512 b) {  // neighbours of 4 lanes added
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
  };
  const auto pairs = [](__m512 a, __m512 b) {  // inside each 4 lanes: 0 + 2, 1 + 3 of a, then of b
    const __m512d x = _mm512_castps_pd(a);
    const __m512d y = _mm512_castps_pd(b);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
  };
  const auto singles = [](__m512 a, __m512 b) {  // inside each 4 lanes: 0 + 1, 2 + 3 of a, then of b
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xDD));
  };
  __m512 fours[4];
  for (int i = 0; i < 4; ++i) {
    fours[i] = quarters(halves(rows[i].v, rows[i + 4].v), halves(rows[i + 8].v, rows[i + 12].v));
  }
  return {singles(pairs(fours[0], fours[1]), pairs(fours[2], fours[3]))};
}

// out[j · 16 + i] = lane j of rows[i].
inline void StoreTransposed(const Vec* rows, float* out) {
  __m512 a[16];
  __m512 b[16];
  for (int i = 0; i < 16; i += 4) {  // 4 x 4 inside each quarter
    const __m512 t0 = _mm512_unpacklo_ps(rows[i].v, rows[i + 1].v);
    const __m512 t1 = _mm512_unpackhi_ps(rows[i].v, rows[i + 1].v);
    const __m512 t2 = _mm512_unpacklo_ps(rows[i + 2].v, rows[i + 3].v);
    const __m512 t3 = _mm512_unpackhi_ps(rows[i + 2].v, rows[i + 3].v);
    a[i] = _mm512_shuffle_ps(t0, t2, 0x44);
    a[i + 1] = _mm512_shuffle_ps(t0, t2, 0xEE);
    a[i + 2] = _mm512_shuffle_ps(t1, t3, 0x44);
    a[i + 3] = _mm512_shuffle_ps(t1, t3, 0xEE);
  }
  // a[4g + c] holds, in quarter q, lane 4q + c of rows 4g .. 4g + 3: now quarters change places.
  for (int c = 0; c < 4; ++c) {
    const __m512 even_lo = _mm512_shuffle_f32x4(a[c], a[4 + c], 0x88);
    const __m512 odd_lo = _mm512_shuffle_f32x4(a[c], a[4 + c], 0xDD);
    const __m512 even_hi = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0x88);
    const __m512 odd_hi = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0xDD);
    b[c] = _mm512_shuffle_f32x4(even_lo, even_hi, 0x88);
    b[8 + c] = _mm512_shuffle_f32x4(even_lo, even_hi, 0xDD);
    b[4 + c] = _mm512_shuffle_f32x4(odd_lo, odd_hi, 0x88);
    b[12 + c] = _mm512_shuffle_f32x4(odd_lo, odd_hi, 0xDD);
  }
  for (int j = 0; j < 16; ++j) _mm512_storeu_ps(out + j * kLanes, b[j]);
}

inline float SquareRoot(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

}  // namespace
}  // namespace berth::cpu
