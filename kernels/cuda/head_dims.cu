#include "kernels/cuda/head_dims.h"

#include "kernels/cuda/head_dim_choice.h"

namespace berth::cuda {

bool IsTunedHeadDim(int head_dim) {
  return WithHeadDim(head_dim, [](auto) { return cudaSuccess; }) == cudaSuccess;
}

}  // namespace berth::cuda
