#include "emulation/runtime_kernels.h"

#include "kernels/gpu.h"

namespace berth::emulation {
namespace {

__global__ void MultiplyAdd(float* value, float factor, float addend) { *value = *value * factor + addend; }

__global__ void Trap() { gpu::BarrierSync(0, 32); }

__global__ void RecordOrder(unsigned* counter, unsigned* order) {
  order[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(counter, 1u);
}

__global__ void Nothing() {}

__global__ void Barriers(int rounds) {
  for (int round = 0; round < rounds; ++round) __syncthreads();
}

}  // namespace

cudaError_t LaunchMultiplyAdd(float* value, float factor, float addend, cudaStream_t stream) {
  return gpu::Launch(MultiplyAdd, dim3(1), dim3(1), 0, stream, value, factor, addend);
}

cudaError_t LaunchTrap(cudaStream_t stream) { return gpu::Launch(Trap, dim3(1), dim3(1), 0, stream); }

cudaError_t LaunchRecordOrder(unsigned blocks, unsigned threads, unsigned* counter, unsigned* order) {
  return gpu::Launch(RecordOrder, dim3(blocks), dim3(threads), 0, nullptr, counter, order);
}

cudaError_t LaunchNothing(dim3 grid, dim3 block, cudaStream_t stream) {
  return gpu::Launch(Nothing, grid, block, 0, stream);
}

cudaError_t LaunchBarriers(unsigned blocks, unsigned threads, int rounds) {
  return gpu::Launch(Barriers, dim3(blocks), dim3(threads), 0, nullptr, rounds);
}

}  // namespace berth::emulation
