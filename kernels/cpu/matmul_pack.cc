// Packing: from a file's rows to panels (packed_layout.h), and a row back.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/block_codes.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/packed_layout.h"

namespace berth::cpu {
namespace {

// Values of a float panel one column at a time, from float32 or as 16-bit patterns.
template <typename T>
void StoreColumn(const T* values, std::int32_t count, std::int32_t first_k, int column, std::byte* panel) {
  for (std::int32_t i = 0; i < count; ++i) {
    std::memcpy(panel + ((static_cast<std::size_t>(first_k) + static_cast<std::size_t>(i)) * kPanelColumns +
                         static_cast<std::size_t>(column)) *
                            sizeof(T),
                values + i, sizeof(T));
  }
}

void PackFloat32Column(WeightFormat format, const std::byte* row, std::int32_t k, int column, std::byte* panel) {
  constexpr std::int32_t kPiece = 256;  // a multiple of every format's block
  float values[kPiece];
  for (std::int32_t first = 0; first < k; first += kPiece) {
    const std::int32_t count = std::min(kPiece, k - first);
    Dequantize(format, row + RowBytes(format, first), count, values);
    StoreColumn(values, count, first, column, panel);
  }
}

void PackHalfColumn(const std::byte* row, std::int32_t k, int column, std::byte* panel) {
  for (std::int32_t i = 0; i < k; ++i) {
    std::uint16_t value;
    std::memcpy(&value, row + 2 * static_cast<std::size_t>(i), sizeof value);
    StoreColumn(&value, 1, i, column, panel);
  }
}

// 4-bit kinds: the second half of a block's codes go to the high nibbles.
void StoreCodes4(const BlockCodes& block, int column, std::byte* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i / 4 * 64 + column * 4 + i % 4] = static_cast<std::byte>(block.codes[i] | (block.codes[i + 16] << 4));
  }
}

// 8-bit kinds: moved so that 128 stands for zero, whatever the format's own zero.
void StoreCodes8(const BlockCodes& block, int column, std::byte* codes) {
  for (int i = 0; i < kBlockInputs; ++i) {
    codes[i / 4 * 64 + column * 4 + i % 4] = static_cast<std::byte>(block.codes[i] - block.zero + 128);
  }
}

template <typename T>
void StoreScale(T value, int index, std::byte* scales) {
  std::memcpy(scales + static_cast<std::size_t>(index) * sizeof(T), &value, sizeof(T));
}

void PackIntegerColumn(WeightFormat format, const std::byte* row, PackedKind kind, const PanelLayout& layout,
                       std::int32_t k, int column, std::byte* panel) {
  for (std::int32_t b = 0; b < k / kBlockInputs; ++b) {
    const BlockCodes block = ReadBlock(format, row, b);
    std::byte* codes = panel + static_cast<std::size_t>(b) * layout.block_codes_bytes;
    std::byte* scales = panel + layout.scales_offset + static_cast<std::size_t>(b) * layout.block_scales_bytes;
    if (kind == PackedKind::kPanelU4 || kind == PackedKind::kPanelU4Symmetric) {
      StoreCodes4(block, column, codes);
    } else {
      StoreCodes8(block, column, codes);
    }
    if (kind == PackedKind::kPanelU8x16) {
      StoreScale(block.scale[0], column, scales);
      StoreScale(block.scale[1], kPanelColumns + column, scales);
    } else {
      StoreScale(block.half_scale, column, scales);
      if (kind == PackedKind::kPanelU4) StoreScale(block.half_minimum, kPanelColumns + column, scales);
    }
  }
}

template <typename T>
T LoadAt(const std::byte* p, int index) {
  T value;
  std::memcpy(&value, p + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

void UnpackFloatColumn(PackedKind kind, const std::byte* panel, const PanelLayout& layout, std::int32_t k, int column,
                       float* dst) {
  for (std::int32_t i = 0; i < k; ++i) {
    const std::byte* line = panel + static_cast<std::size_t>(i) * kPanelColumns * layout.value_bytes;
    if (kind == PackedKind::kPanelF32) {
      dst[i] = LoadAt<float>(line, column);
    } else if (kind == PackedKind::kPanelF16) {
      dst[i] = HalfToFloat(LoadAt<std::uint16_t>(line, column));
    } else {
      dst[i] = BFloat16ToFloat(LoadAt<std::uint16_t>(line, column));
    }
  }
}

void UnpackIntegerColumn(PackedKind kind, const std::byte* panel, const PanelLayout& layout, std::int32_t k, int column,
                         float* dst) {
  const bool nibbles = kind == PackedKind::kPanelU4 || kind == PackedKind::kPanelU4Symmetric;
  const int zero = kind == PackedKind::kPanelU4 ? 0 : nibbles ? 8 : 128;
  for (std::int32_t b = 0; b < k / kBlockInputs; ++b, dst += kBlockInputs) {
    const std::byte* codes = panel + static_cast<std::size_t>(b) * layout.block_codes_bytes;
    const std::byte* scales = panel + layout.scales_offset + static_cast<std::size_t>(b) * layout.block_scales_bytes;
    float scale[2];
    for (int half = 0; half < 2; ++half) {
      scale[half] = kind == PackedKind::kPanelU8x16 ? LoadAt<float>(scales, half * kPanelColumns + column)
                                                    : HalfToFloat(LoadAt<std::uint16_t>(scales, column));
    }
    for (int i = 0; i < kBlockInputs; ++i) {
      const int line = nibbles ? i / 4 % 4 : i / 4;
      const int byte = std::to_integer<int>(codes[line * 64 + column * 4 + i % 4]);
      const int code = !nibbles ? byte : i < 16 ? byte & 15 : byte >> 4;
      dst[i] = scale[i / 16] * static_cast<float>(code - zero);
      if (kind == PackedKind::kPanelU4) dst[i] += HalfToFloat(LoadAt<std::uint16_t>(scales, kPanelColumns + column));
    }
  }
}

}  // namespace

void UnpackRow(const PackedMatrix& w, std::int32_t row, float* dst) {
  const PanelLayout layout = LayoutOf(w.kind, w.k);
  const std::byte* panel = w.data + static_cast<std::size_t>(row / kPanelColumns) * layout.panel_bytes;
  const auto unpack = IsFloatKind(w.kind) ? UnpackFloatColumn : UnpackIntegerColumn;
  unpack(w.kind, panel, layout, w.k, row % kPanelColumns, dst);
}

void PackPanels(WeightFormat format, const void* src, PackedKind kind, std::int32_t n, std::int32_t k, int panel_begin,
                int panel_end, std::byte* dst) {
  const PanelLayout layout = LayoutOf(kind, k);
  const std::size_t row_bytes = RowBytes(format, k);
  for (int p = panel_begin; p < panel_end; ++p) {
    std::byte* panel = dst + static_cast<std::size_t>(p) * layout.panel_bytes;
    // Columns past the last row and the ends of lines: zeros, which no output sees.
    std::memset(panel, 0, layout.panel_bytes);
    const int columns = std::min(kPanelColumns, n - p * kPanelColumns);
    for (int c = 0; c < columns; ++c) {
      const std::byte* row =
          static_cast<const std::byte*>(src) + static_cast<std::size_t>(p * kPanelColumns + c) * row_bytes;
      if (kind == PackedKind::kPanelF32) {
        PackFloat32Column(format, row, k, c, panel);
      } else if (IsFloatKind(kind)) {
        PackHalfColumn(row, k, c, panel);
      } else {
        PackIntegerColumn(format, row, kind, layout, k, c, panel);
      }
    }
  }
}

}  // namespace berth::cpu
