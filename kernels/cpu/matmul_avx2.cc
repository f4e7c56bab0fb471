// AVX2 with FMA and F16C. Compiled for them: see matmul_levels.h for what this file must not include or define.
//
// A tile is some rows times one panel, two accumulator registers (columns 0-7 and 8-15) per row. The operations on an
// accumulator are the same for every size of tile.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/matmul_levels.h"
#include "kernels/cpu/packed_layout.h"

#define BERTH_INLINE inline __attribute__((always_inline))

namespace berth::cpu {
namespace {

constexpr int kMaxRows = 4;
constexpr std::size_t kPanelGroupBytes = std::size_t{256}
                                         << 10;  // weights kept in the second-level cache over the rows

// Where one tile's operands lie.
struct Operands {
  const std::byte* panel;
  const std::byte* x;
  std::size_t row_bytes;
  float* y;
  std::int64_t ldy;
  std::int32_t k;
  std::size_t scales_offset;
  std::int32_t columns;
};

BERTH_INLINE int Min(int a, int b) { return a < b ? a : b; }
BERTH_INLINE int Max(int a, int b) { return a > b ? a : b; }

BERTH_INLINE __m256i LoadBytes(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

BERTH_INLINE __m256 HalvesToFloat(const std::byte* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

BERTH_INLINE void StoreRow(const __m256 (&acc)[2], float* y, int columns) {
  if (columns >= kPanelColumns) {
    _mm256_storeu_ps(y, acc[0]);
    _mm256_storeu_ps(y + 8, acc[1]);
    return;
  }
  float values[kPanelColumns];
  _mm256_storeu_ps(values, acc[0]);
  _mm256_storeu_ps(values + 8, acc[1]);
  for (int c = 0; c < columns; ++c) y[c] = values[c];
}

// ---- activations ----

BERTH_INLINE std::uint32_t MaxMagnitudeBits(const __m256 (&x)[4]) {
  // Compared as bit patterns: an infinity or a NaN is then the largest instead of being lost.
  __m256i most = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(x[i]), _mm256_set1_epi32(0x7FFFFFFF)));
  }
  __m128i half = _mm_max_epu32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0x4E));
  half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0xB1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(half));
}

BERTH_INLINE std::int32_t SumOf(__m256i v) {
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4E));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xB1));
  return _mm_cvtsi128_si32(half);
}

BERTH_INLINE void QuantiseBlock(const float* values, ActivationBlock* out) {
  __m256 x[4];
  for (int i = 0; i < 4; ++i) x[i] = _mm256_loadu_ps(values + 8 * i);
  const std::uint32_t max_bits = MaxMagnitudeBits(x);
  float maximum;
  __builtin_memcpy(&maximum, &max_bits, sizeof maximum);
  *out = ActivationBlock{};
  if (max_bits >= 0x7F800000u) {
    out->scale = out->scaled_sum = __builtin_nanf("");
    return;
  }
  if (maximum < kSmallestBlockMaximum) return;

  const __m256 inverse = _mm256_set1_ps(127.0f / maximum);
  __m256i codes[4];
  for (int i = 0; i < 4; ++i) codes[i] = _mm256_cvtps_epi32(_mm256_mul_ps(x[i], inverse));
  // Packing works within 128-bit lanes: the permutation puts the eight runs of four back in order.
  const __m256i bytes =
      _mm256_packs_epi16(_mm256_packs_epi32(codes[0], codes[1]), _mm256_packs_epi32(codes[2], codes[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out->codes), _mm256_permutevar8x32_epi32(bytes, order));
  const std::int32_t low_sum = SumOf(_mm256_add_epi32(codes[0], codes[1]));
  const std::int32_t high_sum = SumOf(_mm256_add_epi32(codes[2], codes[3]));
  const std::int32_t sum = low_sum + high_sum;
  out->scale = maximum / 127.0f;
  out->scaled_sum = out->scale * static_cast<float>(sum);
  out->minus_8_sum = -8 * sum;
  out->minus_128_sum = -128 * sum;
  out->minus_128_half_sum[0] = -128 * low_sum;
  out->minus_128_half_sum[1] = -128 * high_sum;
}

void PrepareRow(PackedKind kind, const float* x, std::int32_t k, std::byte* dst) {
  const std::size_t row_bytes = PreparedRowBytes(kind, k);
  std::size_t written = 0;
  if (IsFloatKind(kind)) {
    written = static_cast<std::size_t>(k) * sizeof(float);
    __builtin_memcpy(dst, x, written);
  } else {
    for (std::int32_t b = 0; b < k / kBlockInputs; ++b, written += sizeof(ActivationBlock)) {
      QuantiseBlock(x + b * kBlockInputs, reinterpret_cast<ActivationBlock*>(dst + written));
    }
  }
  __builtin_memset(dst + written, 0, row_bytes - written);
}

// ---- integer kinds ----

constexpr bool IsNibbles(PackedKind kind) {
  return kind == PackedKind::kPanelU4 || kind == PackedKind::kPanelU4Symmetric;
}

BERTH_INLINE __m256i BroadcastFour(const ActivationBlock& a, int group) {
  std::int32_t four;
  __builtin_memcpy(&four, a.codes + 4 * group, sizeof four);
  return _mm256_set1_epi32(four);
}

template <int kRows>
struct Dots {
  __m256i at[kRows][2];
};

// Σ code · code over the block. Eight products of at most 2 · 15 · 127 fit into 16 bits: one widening at the end.
template <int kRows>
BERTH_INLINE void NibbleDots(const std::byte* codes, const ActivationBlock* const (&a)[kRows], Dots<kRows>& dots) {
  const __m256i mask = _mm256_set1_epi8(15);
  for (int r = 0; r < kRows; ++r) dots.at[r][0] = dots.at[r][1] = _mm256_setzero_si256();
  for (int g = 0; g < 4; ++g) {
    for (int side = 0; side < 2; ++side) {
      const __m256i bytes = LoadBytes(codes + g * 64 + side * 32);
      const __m256i low = _mm256_and_si256(bytes, mask);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
      for (int r = 0; r < kRows; ++r) {
        const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(low, BroadcastFour(*a[r], g)),
                                               _mm256_maddubs_epi16(high, BroadcastFour(*a[r], g + 4)));
        dots.at[r][side] = _mm256_add_epi16(dots.at[r][side], pairs);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int side = 0; side < 2; ++side) {
      dots.at[r][side] = _mm256_madd_epi16(dots.at[r][side], _mm256_set1_epi16(1));
    }
  }
}

// Σ (code − 128) · code over groups [begin, end). The signed weight's magnitude, at most 128, multiplies the activation
// with the weight's sign: a pair is at most 2 · 128 · 127 = 32,512, so the 16-bit addition inside cannot saturate.
template <int kRows>
BERTH_INLINE void ByteDots(const std::byte* codes, int begin, int end, const ActivationBlock* const (&a)[kRows],
                           Dots<kRows>& dots) {
  for (int r = 0; r < kRows; ++r) dots.at[r][0] = dots.at[r][1] = _mm256_setzero_si256();
  for (int g = begin; g < end; ++g) {
    for (int side = 0; side < 2; ++side) {
      const __m256i weights = _mm256_xor_si256(LoadBytes(codes + g * 64 + side * 32), _mm256_set1_epi8(-128));
      const __m256i magnitudes = _mm256_abs_epi8(weights);
      for (int r = 0; r < kRows; ++r) {
        const __m256i pairs = _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(BroadcastFour(*a[r], g), weights));
        dots.at[r][side] = _mm256_add_epi32(dots.at[r][side], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
      }
    }
  }
}

template <int kRows>
BERTH_INLINE void AddScaled(const Dots<kRows>& dots, const __m256 (&scale)[2], const ActivationBlock* const (&a)[kRows],
                            __m256 (&acc)[kRows][2]) {
  for (int r = 0; r < kRows; ++r) {
    for (int side = 0; side < 2; ++side) {
      acc[r][side] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots.at[r][side]),
                                     _mm256_mul_ps(scale[side], _mm256_set1_ps(a[r]->scale)), acc[r][side]);
    }
  }
}

template <PackedKind kKind, int kRows>
BERTH_INLINE void IntegerBlock(const std::byte* codes, const std::byte* scales,
                               const ActivationBlock* const (&a)[kRows], __m256 (&acc)[kRows][2]) {
  Dots<kRows> dots;
  if constexpr (kKind == PackedKind::kPanelU8x16) {
    for (int half = 0; half < 2; ++half) {
      const auto* at = reinterpret_cast<const float*>(scales + half * 64);
      const __m256 scale[2] = {_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8)};
      ByteDots<kRows>(codes, 4 * half, 4 * half + 4, a, dots);
      AddScaled<kRows>(dots, scale, a, acc);
    }
    return;
  }
  const __m256 scale[2] = {HalvesToFloat(scales), HalvesToFloat(scales + 16)};
  if constexpr (IsNibbles(kKind)) {
    NibbleDots<kRows>(codes, a, dots);
  } else {
    ByteDots<kRows>(codes, 0, 8, a, dots);
  }
  if constexpr (kKind == PackedKind::kPanelU4Symmetric) {
    for (int r = 0; r < kRows; ++r) {
      for (int side = 0; side < 2; ++side) {
        dots.at[r][side] = _mm256_add_epi32(dots.at[r][side], _mm256_set1_epi32(a[r]->minus_8_sum));
      }
    }
  }
  AddScaled<kRows>(dots, scale, a, acc);
  if constexpr (kKind == PackedKind::kPanelU4) {
    for (int r = 0; r < kRows; ++r) {
      for (int side = 0; side < 2; ++side) {
        acc[r][side] =
            _mm256_fmadd_ps(HalvesToFloat(scales + 32 + 16 * side), _mm256_set1_ps(a[r]->scaled_sum), acc[r][side]);
      }
    }
  }
}

template <PackedKind kKind, int kRows>
void IntegerTile(const Operands& o) {
  constexpr int kCodesBytes = IsNibbles(kKind) ? 256 : 512;
  constexpr int kScalesBytes = kKind == PackedKind::kPanelU8x16 ? 128 : kKind == PackedKind::kPanelU4 ? 64 : 32;
  __m256 acc[kRows][2];
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
  const std::byte* codes = o.panel;
  const std::byte* scales = o.panel + o.scales_offset;
  for (std::int32_t b = 0; b < o.k / kBlockInputs; ++b) {
    const ActivationBlock* a[kRows];
    for (int r = 0; r < kRows; ++r) {
      a[r] = reinterpret_cast<const ActivationBlock*>(o.x + static_cast<std::size_t>(r) * o.row_bytes) + b;
    }
    IntegerBlock<kKind, kRows>(codes, scales, a, acc);
    codes += kCodesBytes;
    scales += kScalesBytes;
  }
  for (int r = 0; r < kRows; ++r) StoreRow(acc[r], o.y + r * o.ldy, o.columns);
}

// ---- float kinds ----

template <PackedKind kKind>
BERTH_INLINE __m256 LoadWeights(const std::byte* line, int side) {
  if constexpr (kKind == PackedKind::kPanelF32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(line) + 8 * side);
  } else if constexpr (kKind == PackedKind::kPanelF16) {
    return HalvesToFloat(line + 16 * side);
  } else {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(line + 16 * side));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
}

template <PackedKind kKind, int kRows>
void FloatTile(const Operands& o) {
  constexpr std::size_t kLineStep = kKind == PackedKind::kPanelF32 ? 64 : 32;
  __m256 acc[kRows][2];
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
  const std::byte* line = o.panel;
  const std::byte* x = o.x;
  for (std::int32_t i = 0; i < o.k; ++i) {
    const __m256 low = LoadWeights<kKind>(line, 0);
    const __m256 high = LoadWeights<kKind>(line, 1);
    for (int r = 0; r < kRows; ++r) {
      const __m256 value =
          _mm256_set1_ps(*reinterpret_cast<const float*>(x + static_cast<std::size_t>(r) * o.row_bytes));
      acc[r][0] = _mm256_fmadd_ps(low, value, acc[r][0]);
      acc[r][1] = _mm256_fmadd_ps(high, value, acc[r][1]);
    }
    line += kLineStep;
    x += sizeof(float);
  }
  for (int r = 0; r < kRows; ++r) StoreRow(acc[r], o.y + r * o.ldy, o.columns);
}

// ---- all kinds ----

template <PackedKind kKind, bool kFloat, int kRows>
BERTH_INLINE void TileOf(int rows, const Operands& o) {
  if constexpr (kRows > 0) {
    if (rows != kRows) return TileOf<kKind, kFloat, kRows - 1>(rows, o);
    if constexpr (kFloat) {
      FloatTile<kKind, kRows>(o);
    } else {
      IntegerTile<kKind, kRows>(o);
    }
  }
}

// Groups of panels that the second-level cache holds, over all rows; in a group, a tile's rows stay in the first level.
template <PackedKind kKind, bool kFloat>
void MatMulOf(const PackedMatrix& w, const std::byte* activations, std::int32_t rows, float* y, std::int64_t ldy,
              int panel_begin, int panel_end) {
  const PanelLayout layout = LayoutOf(kKind, w.k);
  const std::size_t row_bytes = PreparedRowBytes(kKind, w.k);
  const int group = Max(1, static_cast<int>(kPanelGroupBytes / layout.panel_bytes));
  for (int first = panel_begin; first < panel_end; first += group) {
    for (int row = 0; row < rows; row += kMaxRows) {
      for (int p = first; p < Min(first + group, panel_end); ++p) {
        const Operands operands = {
            .panel = w.data + static_cast<std::size_t>(p) * layout.panel_bytes,
            .x = activations + static_cast<std::size_t>(row) * row_bytes,
            .row_bytes = row_bytes,
            .y = y + row * ldy + p * kPanelColumns,
            .ldy = ldy,
            .k = w.k,
            .scales_offset = layout.scales_offset,
            .columns = w.n - p * kPanelColumns,
        };
        TileOf<kKind, kFloat, kMaxRows>(Min(kMaxRows, rows - row), operands);
      }
    }
  }
}

void MatMul(const PackedMatrix& w, const std::byte* activations, std::int32_t rows, float* y, std::int64_t ldy,
            int panel_begin, int panel_end) {
  const auto run = [&](auto* product) { product(w, activations, rows, y, ldy, panel_begin, panel_end); };
  switch (w.kind) {
    case PackedKind::kPanelF32:
      return run(MatMulOf<PackedKind::kPanelF32, true>);
    case PackedKind::kPanelF16:
      return run(MatMulOf<PackedKind::kPanelF16, true>);
    case PackedKind::kPanelBF16:
      return run(MatMulOf<PackedKind::kPanelBF16, true>);
    case PackedKind::kPanelU4:
      return run(MatMulOf<PackedKind::kPanelU4, false>);
    case PackedKind::kPanelU4Symmetric:
      return run(MatMulOf<PackedKind::kPanelU4Symmetric, false>);
    case PackedKind::kPanelU8:
      return run(MatMulOf<PackedKind::kPanelU8, false>);
    case PackedKind::kPanelU8x16:
      return run(MatMulOf<PackedKind::kPanelU8x16, false>);
  }
}

}  // namespace

extern constinit const MatMulKernels kAvx2MatMul = {PrepareRow, MatMul};

}  // namespace berth::cpu
