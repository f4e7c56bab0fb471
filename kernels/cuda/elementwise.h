#pragma once

#include <cuda_runtime_api.h>

#include "kernels/params/elementwise.h"

namespace berth::cuda {

// Each enqueues its kernel on the stream. cudaErrorInvalidValue for sizes that are no multiples as the parameters
// document; no rows is no work.
cudaError_t LaunchGatedActivation(const GatedActivationParams& params, cudaStream_t stream);
cudaError_t LaunchEmbedding(const EmbeddingParams& params, cudaStream_t stream);
cudaError_t LaunchBlockCopies(const BlockCopiesParams& params, cudaStream_t stream);

}  // namespace berth::cuda
