#pragma once

#include <cuda_runtime_api.h>

#include "kernels/params/quantized.h"

namespace berth::cuda {

// Each enqueues its kernel on the stream. cudaErrorInvalidValue for a shape beyond what the parameters document; no
// tokens is no work.
cudaError_t LaunchDequantize(const DequantizeParams& params, cudaStream_t stream);
cudaError_t LaunchQuantizedMatmul(const QuantizedMatmulParams& params, cudaStream_t stream);

}  // namespace berth::cuda
