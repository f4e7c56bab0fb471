#pragma once

#include <cuda_runtime_api.h>

#include "kernels/params/plain_attention.h"

namespace berth::cuda {

// Enqueues it on the stream. cudaErrorInvalidValue for a shape beyond what the parameters document.
cudaError_t LaunchPlainAttention(const PlainAttentionParams& params, cudaStream_t stream);

}  // namespace berth::cuda
