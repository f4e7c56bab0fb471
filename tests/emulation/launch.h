// The launch of a kernel, as device.h sees the runtime.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace berth::emulation {

// function: what cudaFuncSetAttribute knows the kernel by. body() runs once for each thread.
cudaError_t EnqueueKernel(const void* function, dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
                          cudaStream_t stream, std::function<void()> body);

}  // namespace berth::emulation
