#include "kernels/weight_data.h"

#include <cmath>
#include <cstring>

namespace berth::test {
namespace {

using cpu::WeightFormat;

void Put16(std::byte* p, std::uint16_t bits) { std::memcpy(p, &bits, sizeof bits); }

std::uint16_t Get16(const std::byte* p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return bits;
}

int Byte(const std::byte* p, int i) { return std::to_integer<int>(p[i]); }

// A finite float of 16 bits with `exponent_bits` bits of exponent; typical ones lie between 2^-8 and 2^-4.
std::uint16_t Random16(int exponent_bits, Scales scales, std::mt19937& rng) {
  const int mantissa_bits = 15 - exponent_bits;
  const unsigned special = (1u << exponent_bits) - 1;
  const unsigned bias = special / 2;
  const unsigned exponent = scales == Scales::kTypical ? bias - 8 + rng() % 4 : rng() % special;
  return static_cast<std::uint16_t>(((rng() & 1u) << 15) | (exponent << mantissa_bits) |
                                    (rng() & ((1u << mantissa_bits) - 1)));
}

// Where a block keeps its half-precision numbers.
std::vector<int> HalfOffsets(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return {};
    case WeightFormat::kQ4_1:
      return {0, 2};
    case WeightFormat::kQ6_K:
      return {208};
    default:
      return {0};
  }
}

struct Value {
  double scaled;
  double minimum;
};

Value Q6KValue(const std::byte* block, int i) {
  // Run of 32 within a half of 128: low nibbles of the first 32 bytes, of the second, then the high nibbles likewise.
  const int half = i / 128, run = i % 128 / 32, l = i % 32;
  const int low_byte = Byte(block, 64 * half + 32 * (run & 1) + l);
  const int low = run >= 2 ? low_byte / 16 : low_byte % 16;
  const int high = Byte(block, 128 + 32 * half + l) >> (2 * run) & 3;
  const int scale = static_cast<std::int8_t>(Byte(block, 192 + i / 16));
  return {HalfValue(Get16(block + 208)) * scale * (low + 16 * high - 32), 0.0};
}

Value ValueOf(WeightFormat format, const std::byte* block, int i) {
  const auto nibble = [&](int offset) {
    return i < 16 ? Byte(block, offset + i) % 16 : Byte(block, offset + i - 16) / 16;
  };
  const double d = HalfValue(Get16(block));
  switch (format) {
    case WeightFormat::kF32: {
      float value;
      std::memcpy(&value, block, sizeof value);
      return {value, 0.0};
    }
    case WeightFormat::kF16:
      return {d, 0.0};
    case WeightFormat::kBF16: {
      const std::uint32_t bits = std::uint32_t{Get16(block)} << 16;
      float value;
      std::memcpy(&value, &bits, sizeof value);
      return {value, 0.0};
    }
    case WeightFormat::kQ4_0:
      return {d * (nibble(2) - 8), 0.0};
    case WeightFormat::kQ4_1:
      return {d * nibble(4), HalfValue(Get16(block + 2))};
    case WeightFormat::kQ5_0:
      return {d * (nibble(6) + 16 * (Byte(block, 2 + i / 8) >> (i % 8) & 1) - 16), 0.0};
    case WeightFormat::kQ8_0:
      return {d * static_cast<std::int8_t>(Byte(block, 2 + i)), 0.0};
    case WeightFormat::kQ6_K:
      return Q6KValue(block, i);
  }
  return {0.0, 0.0};
}

void FillBlock(WeightFormat format, Scales scales, std::mt19937& rng, std::byte* block) {
  const cpu::WeightBlock unit = cpu::BlockOf(format);
  for (int i = 0; i < unit.bytes; ++i) block[i] = static_cast<std::byte>(rng() & 0xFF);
  if (format == WeightFormat::kF32) {
    const float value = std::normal_distribution<float>(0.0f, 0.05f)(rng);
    std::memcpy(block, &value, sizeof value);
  }
  const int exponent_bits = format == WeightFormat::kBF16 ? 8 : 5;
  for (int offset : HalfOffsets(format)) Put16(block + offset, Random16(exponent_bits, scales, rng));
  // Sub-scales multiply d: keep the product of typical size.
  if (format == WeightFormat::kQ6_K && scales == Scales::kTypical) {
    for (int i = 192; i < 208; ++i) block[i] = static_cast<std::byte>(rng() % 7 - 3);
  }
}

}  // namespace

const char* FormatName(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return "F32";
    case WeightFormat::kF16:
      return "F16";
    case WeightFormat::kBF16:
      return "BF16";
    case WeightFormat::kQ4_0:
      return "Q4_0";
    case WeightFormat::kQ4_1:
      return "Q4_1";
    case WeightFormat::kQ5_0:
      return "Q5_0";
    case WeightFormat::kQ8_0:
      return "Q8_0";
    case WeightFormat::kQ6_K:
      return "Q6_K";
  }
  return "?";
}

bool IsQuantised(WeightFormat format) { return cpu::BlockOf(format).elements > 1; }

double HalfValue(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  double magnitude;
  if (exponent == 31) {
    magnitude = mantissa == 0 ? HUGE_VAL : std::nan("");
  } else {
    magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  }
  return bits >> 15 != 0 ? -magnitude : magnitude;
}

StoredWeights RandomWeights(WeightFormat format, int n, int k, Scales scales, std::mt19937& rng) {
  const cpu::WeightBlock unit = cpu::BlockOf(format);
  StoredWeights weights = {format, n, k, {}, {}, {}};
  weights.bytes.resize(static_cast<std::size_t>(n) * cpu::RowBytes(format, k));
  for (std::size_t at = 0; at < weights.bytes.size(); at += static_cast<std::size_t>(unit.bytes)) {
    std::byte* block = weights.bytes.data() + at;
    FillBlock(format, scales, rng, block);
    for (int i = 0; i < unit.elements; ++i) {
      const Value value = ValueOf(format, block, i);
      weights.values.push_back(value.scaled + value.minimum);
      weights.magnitudes.push_back(std::fabs(value.scaled) + std::fabs(value.minimum));
    }
  }
  return weights;
}

}  // namespace berth::test
