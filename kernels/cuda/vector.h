// Eight bfloat16 at a time: the widest access that a thread has. Device code.
#pragma once

#include <cstdint>

#include "kernels/gpu.h"

namespace berth::cuda {

inline constexpr int kVectorElements = 8;

struct Vector8 {
  float values[kVectorElements];
};

// address: a multiple of 16 bytes.
__device__ inline Vector8 LoadVector(const std::uint16_t* address) {
  const uint4 packed = *reinterpret_cast<const uint4*>(address);
  const std::uint32_t pairs[4] = {packed.x, packed.y, packed.z, packed.w};
  Vector8 result;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = gpu::UnpackBf16(pairs[i]);
    result.values[2 * i] = pair.x;
    result.values[2 * i + 1] = pair.y;
  }
  return result;
}

__device__ inline void StoreVector(std::uint16_t* address, const Vector8& vector) {
  const float* values = vector.values;
  *reinterpret_cast<uint4*>(address) = {gpu::PackBf16(values[0], values[1]), gpu::PackBf16(values[2], values[3]),
                                        gpu::PackBf16(values[4], values[5]), gpu::PackBf16(values[6], values[7])};
}

}  // namespace berth::cuda
