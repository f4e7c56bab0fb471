// int8 codes of the KV cache for the tensor cores. Device code of the attention kernels.
#pragma once

#include <cstdint>

#include "kernels/gpu.h"

namespace berth::cuda {

// The two int8 codes in the lower half of a register as bfloat16, exactly. Without a conversion instruction, of which
// a multiprocessor does 16 a clock: 128 + the lower seven bits, less 128, or 256 where the sign is set.
__device__ inline std::uint32_t CodesToBf16(std::uint32_t codes) {
  constexpr std::uint32_t k128 = 0x43004300;  // 0x4380 is 256
  const std::uint32_t spread = (codes & 0xff) | (codes & 0xff00) << 8;
  const std::uint32_t value = (spread & 0x007f007f) | k128;
  const std::uint32_t bias = (spread & 0x00800080) | k128;
  const __nv_bfloat162 result =
      __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&value), *reinterpret_cast<const __nv_bfloat162*>(&bias));
  return *reinterpret_cast<const std::uint32_t*>(&result);
}

}  // namespace berth::cuda
