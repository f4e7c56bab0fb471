#pragma once

namespace berth::cuda {

// Whether paged decode and paged prefill were built for the head dimension (the build's BERTH_CUDA_HEAD_DIMS). Their
// launches refuse any other: it goes to plain attention.
bool IsTunedHeadDim(int head_dim);

}  // namespace berth::cuda
