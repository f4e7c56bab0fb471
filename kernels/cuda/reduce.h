// Sums over warps and blocks. Device code.
#pragma once

#include "kernels/gpu.h"

namespace berth::cuda {

// The sum over the warp's lanes, in each of them. All 32 must come.
__device__ inline float WarpSum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(gpu::kAllLanes, value, distance);
  return value;
}

// The sum over the block's threads, in each of them. All must come, once in a kernel; the block is of whole warps.
__device__ inline float BlockSum(float value) {
  BERTH_SHARED(float[gpu::kWarpThreads], of_warp);
  value = WarpSum(value);
  const unsigned lane = threadIdx.x % gpu::kWarpThreads;
  if (lane == 0) of_warp[threadIdx.x / gpu::kWarpThreads] = value;
  __syncthreads();
  return WarpSum(lane < blockDim.x / gpu::kWarpThreads ? of_warp[lane] : 0.0f);
}

}  // namespace berth::cuda
