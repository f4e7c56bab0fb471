#pragma once

#include <cuda_runtime_api.h>

#include "kernels/params/rms_norm.h"

namespace berth::cuda {

// Enqueues it on the stream. cudaErrorInvalidValue for a hidden_size that the kernel is not made for; no rows is no
// work.
cudaError_t LaunchRmsNorm(const RmsNormParams& params, cudaStream_t stream);

}  // namespace berth::cuda
