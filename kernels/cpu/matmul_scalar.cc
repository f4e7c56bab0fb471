// The definition of the products in plain C++: the only level on machines without the others, and what they must equal.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/cpu/half.h"
#include "kernels/cpu/matmul_levels.h"
#include "kernels/cpu/packed_layout.h"

namespace berth::cpu {
namespace {

template <typename T>
T Load(const std::byte* p, int index) {
  T value;
  std::memcpy(&value, p + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

ActivationBlock QuantiseBlock(const float* x) {
  ActivationBlock block = {};
  // Magnitudes compared as bit patterns: an infinity or a NaN is then the largest instead of being lost.
  std::uint32_t max_bits = 0;
  for (int i = 0; i < kBlockInputs; ++i)
    max_bits = std::max(max_bits, std::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFFu);
  const float maximum = std::bit_cast<float>(max_bits);
  if (!std::isfinite(maximum)) {
    block.scale = block.scaled_sum = std::nanf("");
    return block;
  }
  if (maximum < kSmallestBlockMaximum) return block;

  const float inverse = 127.0f / maximum;
  std::int32_t half_sum[2] = {0, 0};
  for (int i = 0; i < kBlockInputs; ++i) {
    const float code = std::nearbyint(x[i] * inverse);
    block.codes[i] = static_cast<std::int8_t>(code);
    half_sum[i / 16] += static_cast<std::int32_t>(code);
  }
  const std::int32_t sum = half_sum[0] + half_sum[1];
  block.scale = maximum / 127.0f;
  block.scaled_sum = block.scale * static_cast<float>(sum);
  block.minus_8_sum = -8 * sum;
  block.minus_128_sum = -128 * sum;
  for (int i = 0; i < 2; ++i) block.minus_128_half_sum[i] = -128 * half_sum[i];
  return block;
}

void PrepareRow(PackedKind kind, const float* x, std::int32_t k, std::byte* dst) {
  const std::size_t row_bytes = PreparedRowBytes(kind, k);
  std::size_t written = 0;
  if (IsFloatKind(kind)) {
    written = static_cast<std::size_t>(k) * sizeof(float);
    std::memcpy(dst, x, written);
  } else {
    for (std::int32_t b = 0; b < k / kBlockInputs; ++b) {
      const ActivationBlock block = QuantiseBlock(x + b * kBlockInputs);
      std::memcpy(dst + written, &block, sizeof block);
      written += sizeof block;
    }
  }
  std::memset(dst + written, 0, row_bytes - written);
}

float FloatWeight(PackedKind kind, const std::byte* line, int column) {
  switch (kind) {
    case PackedKind::kPanelF16:
      return HalfToFloat(Load<std::uint16_t>(line, column));
    case PackedKind::kPanelBF16:
      return BFloat16ToFloat(Load<std::uint16_t>(line, column));
    default:
      return Load<float>(line, column);
  }
}

void FloatPanel(const PackedMatrix& w, const PanelLayout& layout, const std::byte* panel, const std::byte* x,
                float* acc) {
  for (std::int32_t i = 0; i < w.k; ++i) {
    const std::byte* line = panel + static_cast<std::size_t>(i) * kPanelColumns * layout.value_bytes;
    const float value = Load<float>(x, i);
    for (int c = 0; c < kPanelColumns; ++c) acc[c] = std::fma(FloatWeight(w.kind, line, c), value, acc[c]);
  }
}

// Σ code · code of one column over inputs [begin, end) of a block, less what the weights' zero point adds.
std::int32_t Dot(PackedKind kind, const std::byte* codes, int column, const ActivationBlock& a, int begin, int end) {
  const bool nibbles = kind == PackedKind::kPanelU4 || kind == PackedKind::kPanelU4Symmetric;
  const int zero = kind == PackedKind::kPanelU4 ? 0 : nibbles ? 8 : 128;
  std::int32_t sum = 0;
  for (int i = begin; i < end; ++i) {
    const int line = nibbles ? i / 4 % 4 : i / 4;
    const int byte = std::to_integer<int>(codes[line * 64 + column * 4 + i % 4]);
    const int code = !nibbles ? byte : i < 16 ? byte & 15 : byte >> 4;
    sum += (code - zero) * a.codes[i];
  }
  return sum;
}

void IntegerBlock(PackedKind kind, const std::byte* codes, const std::byte* scales, const ActivationBlock& a,
                  float* acc) {
  for (int c = 0; c < kPanelColumns; ++c) {
    if (kind == PackedKind::kPanelU8x16) {
      for (int half = 0; half < 2; ++half) {
        const float dot = static_cast<float>(Dot(kind, codes, c, a, 16 * half, 16 * half + 16));
        acc[c] = std::fma(dot, Load<float>(scales, half * kPanelColumns + c) * a.scale, acc[c]);
      }
      continue;
    }
    const float dot = static_cast<float>(Dot(kind, codes, c, a, 0, kBlockInputs));
    acc[c] = std::fma(dot, HalfToFloat(Load<std::uint16_t>(scales, c)) * a.scale, acc[c]);
    if (kind == PackedKind::kPanelU4) {
      acc[c] = std::fma(HalfToFloat(Load<std::uint16_t>(scales, kPanelColumns + c)), a.scaled_sum, acc[c]);
    }
  }
}

void IntegerPanel(const PackedMatrix& w, const PanelLayout& layout, const std::byte* panel, const std::byte* x,
                  float* acc) {
  for (std::int32_t b = 0; b < w.k / kBlockInputs; ++b) {
    const std::size_t block = static_cast<std::size_t>(b);
    IntegerBlock(w.kind, panel + block * layout.block_codes_bytes,
                 panel + layout.scales_offset + block * layout.block_scales_bytes, Load<ActivationBlock>(x, b), acc);
  }
}

void MatMul(const PackedMatrix& w, const std::byte* activations, std::int32_t rows, float* y, std::int64_t ldy,
            int panel_begin, int panel_end) {
  const PanelLayout layout = LayoutOf(w.kind, w.k);
  const std::size_t row_bytes = PreparedRowBytes(w.kind, w.k);
  for (int p = panel_begin; p < panel_end; ++p) {
    const std::byte* panel = w.data + static_cast<std::size_t>(p) * layout.panel_bytes;
    const int columns = std::min(kPanelColumns, w.n - p * kPanelColumns);
    for (std::int32_t m = 0; m < rows; ++m) {
      const std::byte* x = activations + static_cast<std::size_t>(m) * row_bytes;
      float acc[kPanelColumns] = {};
      if (IsFloatKind(w.kind)) {
        FloatPanel(w, layout, panel, x, acc);
      } else {
        IntegerPanel(w, layout, panel, x, acc);
      }
      std::copy_n(acc, columns, y + m * ldy + p * kPanelColumns);
    }
  }
}

}  // namespace

constinit const MatMulKernels kScalarMatMul = {PrepareRow, MatMul};

}  // namespace berth::cpu
