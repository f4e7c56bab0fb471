#pragma once

#include <cuda_runtime_api.h>

#include "kernels/params/paged_decode.h"

namespace berth::cuda {

// Enqueues the chunks and, if there can be several, their merge. cudaErrorInvalidValue for a shape beyond what the
// parameters document.
cudaError_t LaunchPagedDecode(const PagedDecodeParams& params, cudaStream_t stream);

}  // namespace berth::cuda
