// The tensor cores' matrix instructions: which lane holds which element is the PTX ISA's, "Warp-level Matrix
// Instructions". Products are accumulated in float32 one after another; the hardware's order and rounding are its own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "emulation/call_site.h"
#include "emulation/warp.h"

namespace berth::emulation {

// d += a · b of a 16 × k by a k × 8 matrix: k = 16 for the 16-bit types, 32 for 8-bit integers.
void MmaBf16(float* d, const std::uint32_t* a, const std::uint32_t* b, CallSite site);
void MmaF16(float* d, const std::uint32_t* a, const std::uint32_t* b, CallSite site);
void MmaS8(std::int32_t* d, const std::uint32_t* a, const std::uint32_t* b, CallSite site);

// For each of `count` matrices the two elements' addresses that ldmatrix gives to the calling lane: one pair of
// neighbours in a row, or with `transposed` the same column of two rows.
void MatrixElements(unsigned count, bool transposed, const void* row, const void* (*elements)[2], CallSite site);

template <int kCount, bool kTransposed>
void LoadMatrix(std::uint32_t (&registers)[kCount], const void* row, CallSite site) {
  const void* elements[kCount][2];
  MatrixElements(kCount, kTransposed, row, elements, site);
  for (int matrix = 0; matrix < kCount; ++matrix) {
    const std::uint32_t low = *static_cast<const std::uint16_t*>(elements[matrix][0]);
    const std::uint32_t high = *static_cast<const std::uint16_t*>(elements[matrix][1]);
    registers[matrix] = low | high << 16;
  }
}

}  // namespace berth::emulation
