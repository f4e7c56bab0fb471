#pragma once

#include <cuda_runtime_api.h>

#include "kernels/params/rope_kv_write.h"

namespace berth::cuda {

// Enqueues it on the stream. cudaErrorInvalidValue for a shape beyond what the parameters document.
cudaError_t LaunchRopeKvWrite(const RopeKvWriteParams& params, cudaStream_t stream);

}  // namespace berth::cuda
