// Random weights in every stored format, and their values computed from the written formulas, independently of the
// kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cpu/dequantize.h"

namespace berth::test {

inline constexpr cpu::WeightFormat kAllFormats[] = {
    cpu::WeightFormat::kF32,  cpu::WeightFormat::kF16,  cpu::WeightFormat::kBF16, cpu::WeightFormat::kQ4_0,
    cpu::WeightFormat::kQ4_1, cpu::WeightFormat::kQ5_0, cpu::WeightFormat::kQ8_0, cpu::WeightFormat::kQ6_K};

const char* FormatName(cpu::WeightFormat format);
bool IsQuantised(cpu::WeightFormat format);

// A half-precision bit pattern as its IEEE 754 definition says.
double HalfValue(std::uint16_t bits);

struct StoredWeights {
  cpu::WeightFormat format = cpu::WeightFormat::kF32;
  int n = 0;
  int k = 0;
  std::vector<std::byte> bytes;    // n rows, one after the other
  std::vector<double> values;      // [n][k], exact
  std::vector<double> magnitudes;  // [n][k]: |scale · code| + |minimum|, what rounding errors are relative to
};

enum class Scales {
  kTypical,   // of the size that trained weights have, both signs
  kAnyFinite  // any finite pattern: subnormal, huge, negative
};

StoredWeights RandomWeights(cpu::WeightFormat format, int n, int k, Scales scales, std::mt19937& rng);

}  // namespace berth::test
