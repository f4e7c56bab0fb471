// From a head dimension to the kernel that was compiled for it. For the launches of kernels.
#pragma once

#include <type_traits>
#include <utility>

#include "kernels/gpu.h"

// Bit d / 16 for each head dimension d that is built (cmake/BerthCuda.cmake). Without a choice, as in the tests'
// emulation, all are.
#ifndef BERTH_CUDA_HEAD_DIM_BITS
#define BERTH_CUDA_HEAD_DIM_BITS 0x10170
#endif

namespace berth::cuda {

using TunedHeadDims = std::integer_sequence<int, 64, 80, 96, 128, 256>;

// launch(std::integral_constant<int, head_dim>()), or cudaErrorInvalidValue if that is not built.
template <typename Launch, int... kDims>
cudaError_t WithHeadDim(int head_dim, const Launch& launch, std::integer_sequence<int, kDims...>) {
  cudaError_t error = cudaErrorInvalidValue;
  const auto launch_if = [&]<int kDim>(std::integral_constant<int, kDim> dim) {
    if constexpr ((BERTH_CUDA_HEAD_DIM_BITS >> (kDim / 16) & 1) != 0) {
      if (head_dim == kDim) error = launch(dim);
    }
  };
  (launch_if(std::integral_constant<int, kDims>()), ...);
  return error;
}
template <typename Launch>
cudaError_t WithHeadDim(int head_dim, const Launch& launch) {
  return WithHeadDim(head_dim, launch, TunedHeadDims());
}

}  // namespace berth::cuda
