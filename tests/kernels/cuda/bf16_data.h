// bfloat16 rows for tests of CUDA kernels, and what a kernel's result may differ by.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cpu/half.h"

namespace berth::cuda {

inline std::size_t Size(std::int64_t size) { return static_cast<std::size_t>(size); }

inline std::uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline double FromBf16(std::uint16_t value) { return cpu::BFloat16ToFloat(value); }

// Normally distributed, the same for the same seed.
inline std::vector<std::uint16_t> RandomBf16(std::size_t size, unsigned seed, float deviation = 1.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution(0.0f, deviation);
  std::vector<std::uint16_t> values(size);
  for (std::uint16_t& value : values) value = ToBf16(distribution(generator));
  return values;
}

// One unit in the last place of a bfloat16 result: the kernel rounds a float32 that is a little off the exact value.
inline double Bf16Unit(double value) { return std::abs(value) / 128 + 1e-30; }

}  // namespace berth::cuda
