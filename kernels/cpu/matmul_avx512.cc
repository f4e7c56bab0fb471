// AVX-512 with VNNI. Compiled for it: see matmul_levels.h for what this file must not include or define.
//
// A tile is some rows times one panel (integer kinds) or several (float kinds), with one accumulator register per row
// and panel. The size of the tile an output falls into changes how much is done at once, never the operations on its
// accumulator, so results do not depend on it.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/matmul_levels.h"
#include "kernels/cpu/packed_layout.h"

#define BERTH_INLINE inline __attribute__((always_inline))

namespace berth::cpu {
namespace {

constexpr int kMaxIntegerRows = 16;  // 16 accumulators and 8 registers of codes: what 32 registers hold
constexpr int kMaxFloatRows = 12;    // times two panels
constexpr int kMaxFloatPanels = 4;   // up to 4 rows: enough independent chains to hide the latency of fma
constexpr std::size_t kPanelGroupBytes = std::size_t{512}
                                         << 10;  // weights kept in the second-level cache over the rows

// Where one call's operands lie.
struct Operands {
  const std::byte* panel;
  std::size_t panel_bytes;
  const std::byte* x;
  std::size_t row_bytes;
  float* y;
  std::int64_t ldy;
  std::int32_t k;
  std::size_t scales_offset;
  std::int32_t columns;  // of this and the following panels
};

BERTH_INLINE int Min(int a, int b) { return a < b ? a : b; }
BERTH_INLINE int Max(int a, int b) { return a > b ? a : b; }

BERTH_INLINE __mmask16 ColumnMask(int columns) {
  return columns >= kPanelColumns ? __mmask16{0xFFFF} : static_cast<__mmask16>((1u << columns) - 1u);
}

BERTH_INLINE __m512 HalvesToFloat(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// ---- activations ----

BERTH_INLINE void QuantiseBlock(const float* x, ActivationBlock* out) {
  const __m512 low = _mm512_loadu_ps(x);
  const __m512 high = _mm512_loadu_ps(x + 16);
  // Magnitudes compared as bit patterns: an infinity or a NaN is then the largest instead of being lost.
  const __m512i magnitude_mask = _mm512_set1_epi32(0x7FFFFFFF);
  const std::uint32_t max_bits =
      _mm512_reduce_max_epu32(_mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(low), magnitude_mask),
                                               _mm512_and_si512(_mm512_castps_si512(high), magnitude_mask)));
  float maximum;
  __builtin_memcpy(&maximum, &max_bits, sizeof maximum);
  *out = ActivationBlock{};
  if (max_bits >= 0x7F800000u) {
    out->scale = out->scaled_sum = __builtin_nanf("");
    return;
  }
  if (maximum < kSmallestBlockMaximum) return;

  const __m512 inverse = _mm512_set1_ps(127.0f / maximum);
  const __m512i low_codes = _mm512_cvtps_epi32(_mm512_mul_ps(low, inverse));
  const __m512i high_codes = _mm512_cvtps_epi32(_mm512_mul_ps(high, inverse));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out->codes), _mm512_cvtepi32_epi8(low_codes));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out->codes + 16), _mm512_cvtepi32_epi8(high_codes));
  const std::int32_t low_sum = _mm512_reduce_add_epi32(low_codes);
  const std::int32_t high_sum = _mm512_reduce_add_epi32(high_codes);
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

// A block's codes of 16 columns: eight registers, each four inputs for each column.
template <PackedKind kKind>
BERTH_INLINE void LoadCodes(const std::byte* p, __m512i (&codes)[8]) {
  if constexpr (IsNibbles(kKind)) {
    const __m512i mask = _mm512_set1_epi8(15);
    for (int g = 0; g < 4; ++g) {
      const __m512i bytes = _mm512_loadu_si512(p + g * 64);
      codes[g] = _mm512_and_si512(bytes, mask);
      codes[g + 4] = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask);
    }
  } else {
    for (int g = 0; g < 8; ++g) codes[g] = _mm512_loadu_si512(p + g * 64);
  }
}

// sum + Σ code · code of four inputs, `four` the same for all columns. The instruction broadcasts from memory by
// itself; the intrinsic makes GCC 12 load and broadcast first, which costs half as much time again.
BERTH_INLINE void AddDotOfFour(const std::int8_t* four, __m512i codes, __m512i& sum) {
  using Four = const std::int8_t[4];
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(codes), "m"(*reinterpret_cast<Four*>(four)));
}

// start + Σ code · code over groups [begin, end).
template <int kBegin, int kEnd>
BERTH_INLINE __m512 Dot(__m512i start, const __m512i (&codes)[8], const ActivationBlock& a) {
#pragma GCC unroll 8
  for (int g = kBegin; g < kEnd; ++g) AddDotOfFour(a.codes + 4 * g, codes[g], start);
  return _mm512_cvtepi32_ps(start);
}

template <PackedKind kKind, int kRows>
void IntegerTile(const Operands& o) {
  constexpr int kCodesBytes = IsNibbles(kKind) ? 256 : 512;
  constexpr int kScalesBytes = kKind == PackedKind::kPanelU8x16 ? 128 : kKind == PackedKind::kPanelU4 ? 64 : 32;
  __m512 acc[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();

  const std::byte* codes_at = o.panel;
  const std::byte* scales_at = o.panel + o.scales_offset;
  const std::byte* x = o.x;
  for (std::int32_t b = 0; b < o.k / kBlockInputs; ++b) {
    // The same block of the next panel: far enough ahead for memory, whatever the rows. Past the end it does nothing.
#pragma GCC unroll 8
    for (int line = 0; line < kCodesBytes; line += 64) _mm_prefetch(codes_at + o.panel_bytes + line, _MM_HINT_T0);
    _mm_prefetch(scales_at + o.panel_bytes, _MM_HINT_T0);

    __m512i codes[8];
    LoadCodes<kKind>(codes_at, codes);
    __m512 scale, second = _mm512_setzero_ps();
    if constexpr (kKind == PackedKind::kPanelU8x16) {
      scale = _mm512_loadu_ps(scales_at);
      second = _mm512_loadu_ps(scales_at + 64);
    } else {
      scale = HalvesToFloat(scales_at);
      if constexpr (kKind == PackedKind::kPanelU4) second = HalvesToFloat(scales_at + 32);
    }
    const std::byte* row = x;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r, row += o.row_bytes) {
      // Hides from the compiler how rows are apart: it would address them as base plus index, and an instruction that
      // broadcasts from such an address takes two slots of the core's front end instead of one.
      asm("" : "+r"(row));
      const auto& a = *reinterpret_cast<const ActivationBlock*>(row);
      const __m512 x_scale = _mm512_set1_ps(a.scale);
      if constexpr (kKind == PackedKind::kPanelU8x16) {
        const __m512 low = Dot<0, 4>(_mm512_set1_epi32(a.minus_128_half_sum[0]), codes, a);
        acc[r] = _mm512_fmadd_ps(low, _mm512_mul_ps(scale, x_scale), acc[r]);
        const __m512 high = Dot<4, 8>(_mm512_set1_epi32(a.minus_128_half_sum[1]), codes, a);
        acc[r] = _mm512_fmadd_ps(high, _mm512_mul_ps(second, x_scale), acc[r]);
      } else {
        const __m512i start = kKind == PackedKind::kPanelU4            ? _mm512_setzero_si512()
                              : kKind == PackedKind::kPanelU4Symmetric ? _mm512_set1_epi32(a.minus_8_sum)
                                                                       : _mm512_set1_epi32(a.minus_128_sum);
        acc[r] = _mm512_fmadd_ps(Dot<0, 8>(start, codes, a), _mm512_mul_ps(scale, x_scale), acc[r]);
        if constexpr (kKind == PackedKind::kPanelU4) {
          acc[r] = _mm512_fmadd_ps(second, _mm512_set1_ps(a.scaled_sum), acc[r]);
        }
      }
    }
    codes_at += kCodesBytes;
    scales_at += kScalesBytes;
    x += sizeof(ActivationBlock);
  }
  const __mmask16 mask = ColumnMask(o.columns);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) _mm512_mask_storeu_ps(o.y + r * o.ldy, mask, acc[r]);
}

template <PackedKind kKind, int kRows>
BERTH_INLINE void IntegerTileOf(int rows, const Operands& o) {
  if constexpr (kRows > 0) {
    if (rows == kRows) return IntegerTile<kKind, kRows>(o);
    IntegerTileOf<kKind, kRows - 1>(rows, o);
  }
}

// ---- float kinds ----

template <PackedKind kKind>
BERTH_INLINE __m512 LoadWeights(const std::byte* p) {
  if constexpr (kKind == PackedKind::kPanelF32) {
    return _mm512_loadu_ps(p);
  } else if constexpr (kKind == PackedKind::kPanelF16) {
    return HalvesToFloat(p);
  } else {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
}

template <PackedKind kKind, int kRows, int kPanels>
void FloatTile(const Operands& o) {
  constexpr std::size_t kLineStep = kKind == PackedKind::kPanelF32 ? 64 : 32;
  __m512 acc[kPanels][kRows];
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) acc[p][r] = _mm512_setzero_ps();
  }
  const std::byte* line = o.panel;
  const std::byte* x = o.x;
  for (std::int32_t i = 0; i < o.k; ++i) {
    // The same inputs of the panels that follow; past the end it does nothing.
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p)
      _mm_prefetch(line + static_cast<std::size_t>(kPanels + p) * o.panel_bytes, _MM_HINT_T0);
    __m512 weights[kPanels];
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p)
      weights[p] = LoadWeights<kKind>(line + static_cast<std::size_t>(p) * o.panel_bytes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const __m512 value =
          _mm512_set1_ps(*reinterpret_cast<const float*>(x + static_cast<std::size_t>(r) * o.row_bytes));
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) acc[p][r] = _mm512_fmadd_ps(weights[p], value, acc[p][r]);
    }
    line += kLineStep;
    x += sizeof(float);
  }
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) {
    const __mmask16 mask = ColumnMask(o.columns - p * kPanelColumns);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) _mm512_mask_storeu_ps(o.y + r * o.ldy + p * kPanelColumns, mask, acc[p][r]);
  }
}

constexpr int FloatPanels(int rows) { return rows <= 4 ? kMaxFloatPanels : 2; }

template <PackedKind kKind, int kRows>
BERTH_INLINE void FloatTileOf(int rows, int panels, const Operands& o) {
  if constexpr (kRows > 0) {
    if (rows != kRows) return FloatTileOf<kKind, kRows - 1>(rows, panels, o);
    if constexpr (FloatPanels(kRows) == 4) {
      if (panels == 4) return FloatTile<kKind, kRows, 4>(o);
    }
    if (panels == 2) return FloatTile<kKind, kRows, 2>(o);
    FloatTile<kKind, kRows, 1>(o);
  }
}

// The largest of 4, 2 and 1 panels that the tile takes and that are left.
BERTH_INLINE int FloatTilePanels(int rows, int left) {
  const int most = Min(FloatPanels(rows), left);
  return most >= 4 ? 4 : most >= 2 ? 2 : 1;
}

// ---- all kinds ----

// Panels [o.panel, o.panel + panels) times `rows` rows.
template <PackedKind kKind, bool kFloat>
BERTH_INLINE void RowsTimesPanels(int rows, int panels, Operands o) {
  for (int done = 0; done < panels;) {
    int step = 1;
    if constexpr (kFloat) {
      step = FloatTilePanels(rows, panels - done);
      FloatTileOf<kKind, kMaxFloatRows>(rows, step, o);
    } else {
      IntegerTileOf<kKind, kMaxIntegerRows>(rows, o);
    }
    done += step;
    o.panel += static_cast<std::size_t>(step) * o.panel_bytes;
    o.y += step * kPanelColumns;
    o.columns -= step * kPanelColumns;
  }
}

// Groups of panels that the second-level cache holds, over all rows; in a group, a tile's rows stay in the first level.
template <PackedKind kKind, bool kFloat>
void MatMulOf(const PackedMatrix& w, const std::byte* activations, std::int32_t rows, float* y, std::int64_t ldy,
              int panel_begin, int panel_end) {
  const PanelLayout layout = LayoutOf(kKind, w.k);
  const std::size_t row_bytes = PreparedRowBytes(kKind, w.k);
  const int max_rows = kFloat ? kMaxFloatRows : kMaxIntegerRows;
  // A multiple of the panels that a float tile takes at once.
  const int fitting = static_cast<int>(kPanelGroupBytes / layout.panel_bytes);
  const int group = Max(kMaxFloatPanels, fitting / kMaxFloatPanels * kMaxFloatPanels);
  for (int first = panel_begin; first < panel_end; first += group) {
    const int panels = Min(group, panel_end - first);
    for (int row = 0; row < rows;) {
      // Tiles of nearly equal heights: 17 rows are 9 and 8.
      const int tiles = (rows - row + max_rows - 1) / max_rows;
      const int height = (rows - row + tiles - 1) / tiles;
      const Operands operands = {
          .panel = w.data + static_cast<std::size_t>(first) * layout.panel_bytes,
          .panel_bytes = layout.panel_bytes,
          .x = activations + static_cast<std::size_t>(row) * row_bytes,
          .row_bytes = row_bytes,
          .y = y + row * ldy + first * kPanelColumns,
          .ldy = ldy,
          .k = w.k,
          .scales_offset = layout.scales_offset,
          .columns = w.n - first * kPanelColumns,
      };
      RowsTimesPanels<kKind, kFloat>(height, panels, operands);
      row += height;
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

extern constinit const MatMulKernels kAvx512MatMul = {PrepareRow, MatMul};

}  // namespace berth::cpu
