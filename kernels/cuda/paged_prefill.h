#pragma once

#include <cuda_runtime_api.h>

#include "kernels/params/paged_prefill.h"

namespace berth::cuda {

// Enqueues it on the stream. cudaErrorInvalidValue for a shape beyond what the parameters document.
cudaError_t LaunchPagedPrefill(const PagedPrefillParams& params, cudaStream_t stream);

}  // namespace berth::cuda
