#pragma once

#include <cuda_runtime_api.h>

#include "kernels/params/sampling.h"

namespace berth::cuda {

// Each enqueues its kernel on the stream. cudaErrorInvalidValue for a vocabulary beyond what the parameters document;
// no rows is no work.
cudaError_t LaunchSampling(const SamplingParams& params, cudaStream_t stream);
cudaError_t LaunchCarryTokens(const CarryTokensParams& params, cudaStream_t stream);

}  // namespace berth::cuda
