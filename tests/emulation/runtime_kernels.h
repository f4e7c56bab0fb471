// Kernels for the tests of the runtime's stand-in.
#pragma once

#include <cuda_runtime_api.h>

namespace berth::emulation {

// *value = *value * factor + addend
cudaError_t LaunchMultiplyAdd(float* value, float factor, float addend, cudaStream_t stream);
// Ends with a fault.
cudaError_t LaunchTrap(cudaStream_t stream);
// order[thread's number in the grid] = how many threads came before it.
cudaError_t LaunchRecordOrder(unsigned blocks, unsigned threads, unsigned* counter, unsigned* order);
// Nothing, with this shape.
cudaError_t LaunchNothing(dim3 grid, dim3 block, cudaStream_t stream);
// Threads that meet in a barrier `rounds` times.
cudaError_t LaunchBarriers(unsigned blocks, unsigned threads, int rounds);

}  // namespace berth::emulation
