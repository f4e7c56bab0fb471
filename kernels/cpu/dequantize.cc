#include "kernels/cpu/dequantize.h"

#include <cstring>

#include "kernels/cpu/block_codes.h"
#include "kernels/cpu/half.h"

namespace berth::cpu {
namespace {

std::uint16_t LoadU16(const std::byte* p) {
  std::uint16_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

std::uint32_t LoadU32(const std::byte* p) {
  std::uint32_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

int At(const std::byte* p, int i) { return std::to_integer<int>(p[i]); }

void SetScale(BlockCodes& block, const std::byte* half) {
  block.half_scale = LoadU16(half);
  block.scale[0] = block.scale[1] = HalfToFloat(block.half_scale);
}

// 16 bytes hold 32 nibbles: the low ones are values 0..15, the high ones 16..31.
void ReadNibbles(const std::byte* bytes, BlockCodes& block) {
  for (int i = 0; i < 16; ++i) {
    block.codes[i] = static_cast<std::uint8_t>(At(bytes, i) & 15);
    block.codes[i + 16] = static_cast<std::uint8_t>(At(bytes, i) >> 4);
  }
}

void ReadQ4(const std::byte* p, bool has_minimum, BlockCodes& block) {
  SetScale(block, p);
  ReadNibbles(p + (has_minimum ? 4 : 2), block);
  block.zero = has_minimum ? 0 : 8;
  if (has_minimum) {
    block.half_minimum = LoadU16(p + 2);
    block.minimum = HalfToFloat(block.half_minimum);
  }
}

void ReadQ5_0(const std::byte* p, BlockCodes& block) {
  SetScale(block, p);
  const std::uint32_t fifth_bits = LoadU32(p + 2);
  ReadNibbles(p + 6, block);
  for (int i = 0; i < kCodesPerBlock; ++i) {
    block.codes[i] = static_cast<std::uint8_t>(block.codes[i] | (((fifth_bits >> i) & 1u) << 4));
  }
  block.zero = 16;
}

void ReadQ8_0(const std::byte* p, BlockCodes& block) {
  SetScale(block, p);
  // Two's complement plus 128 flips the top bit.
  for (int i = 0; i < kCodesPerBlock; ++i) block.codes[i] = static_cast<std::uint8_t>(At(p + 2, i) ^ 0x80);
  block.zero = 128;
}

// A super-block is two halves of 128 values. In a half, 64 bytes of low nibbles (first the low then the high ones) and
// 32 bytes of high bit pairs make four runs of 32 values; `part` is the run, 0..7 over both halves.
void ReadQ6_K(const std::byte* p, int part, BlockCodes& block) {
  const int half = part / 4;
  const int run = part % 4;
  const std::byte* low = p + half * 64 + (run % 2) * 32;
  const std::byte* high = p + 128 + half * 32;
  const std::byte* scales = p + 192 + part * 2;
  block.half_scale = LoadU16(p + 208);
  for (int i = 0; i < kCodesPerBlock; ++i) {
    const int nibble = run < 2 ? At(low, i) & 15 : At(low, i) >> 4;
    block.codes[i] = static_cast<std::uint8_t>(nibble | (((At(high, i) >> (2 * run)) & 3) << 4));
  }
  std::memcpy(block.sub_scales, scales, sizeof block.sub_scales);
  // Exact: 11 bits of the scale times 8 bits of the sub-scale.
  const float scale = HalfToFloat(block.half_scale);
  for (int i = 0; i < 2; ++i) block.scale[i] = scale * static_cast<float>(block.sub_scales[i]);
  block.zero = 32;
}

}  // namespace

BlockCodes ReadBlock(WeightFormat format, const std::byte* row, std::int64_t index) {
  BlockCodes block;
  const WeightBlock unit = BlockOf(format);
  const std::int64_t parts = unit.elements / kCodesPerBlock;
  const std::byte* p = row + index / parts * unit.bytes;
  switch (format) {
    case WeightFormat::kQ4_0:
      ReadQ4(p, false, block);
      break;
    case WeightFormat::kQ4_1:
      ReadQ4(p, true, block);
      break;
    case WeightFormat::kQ5_0:
      ReadQ5_0(p, block);
      break;
    case WeightFormat::kQ8_0:
      ReadQ8_0(p, block);
      break;
    case WeightFormat::kQ6_K:
      ReadQ6_K(p, static_cast<int>(index % parts), block);
      break;
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      break;
  }
  return block;
}

void Dequantize(WeightFormat format, const void* src, std::int64_t n, float* dst) {
  const auto* bytes = static_cast<const std::byte*>(src);
  switch (format) {
    case WeightFormat::kF32:
      std::memcpy(dst, src, static_cast<std::size_t>(n) * sizeof(float));
      return;
    case WeightFormat::kF16:
      for (std::int64_t i = 0; i < n; ++i) dst[i] = HalfToFloat(LoadU16(bytes + 2 * i));
      return;
    case WeightFormat::kBF16:
      for (std::int64_t i = 0; i < n; ++i) dst[i] = BFloat16ToFloat(LoadU16(bytes + 2 * i));
      return;
    default:
      break;
  }
  // scale · (code − zero) is exact in float32 for all but Q6_K (11 + 8 + 6 bits), where it is the one rounding; a
  // format with a minimum rounds in the addition alone.
  for (std::int64_t index = 0; index < n / kCodesPerBlock; ++index) {
    const BlockCodes block = ReadBlock(format, bytes, index);
    float* out = dst + index * kCodesPerBlock;
    for (int i = 0; i < kCodesPerBlock; ++i) {
      out[i] = block.scale[i / 16] * static_cast<float>(block.codes[i] - block.zero);
      if (format == WeightFormat::kQ4_1) out[i] += block.minimum;
    }
  }
}

}  // namespace berth::cpu
