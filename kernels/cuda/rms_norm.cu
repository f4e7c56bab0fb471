#include "kernels/cuda/rms_norm.h"

#include "kernels/cuda/reduce.h"
#include "kernels/cuda/vector.h"
#include "kernels/gpu.h"

namespace berth::cuda {
namespace {

constexpr int kMaxThreads = 1024;

// A block for each row, a thread for each vector of it, so that the row is read once and stays in registers.
__global__ void __launch_bounds__(kMaxThreads) RmsNormKernel(const __grid_constant__ RmsNormParams params) {
  const int column = static_cast<int>(threadIdx.x) * kVectorElements;
  const std::size_t at = static_cast<std::size_t>(blockIdx.x) * params.hidden_size + column;
  const bool active = column < params.hidden_size;
  Vector8 x{};
  Vector8 weight{};
  if (active) {
    x = LoadVector(params.input + at);
    weight = LoadVector(params.weight + column);
    if (params.residual != nullptr) {
      const Vector8 residual = LoadVector(params.residual + at);
#pragma unroll
      for (int i = 0; i < kVectorElements; ++i) x.values[i] += residual.values[i];
      StoreVector(params.residual + at, x);
    }
  }
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kVectorElements; ++i) squares += x.values[i] * x.values[i];
  const float scale = rsqrtf(BlockSum(squares) / static_cast<float>(params.hidden_size) + params.epsilon);
  if (!active) return;
#pragma unroll
  for (int i = 0; i < kVectorElements; ++i) x.values[i] *= scale * weight.values[i];
  StoreVector(params.output + at, x);
}

}  // namespace

cudaError_t LaunchRmsNorm(const RmsNormParams& params, cudaStream_t stream) {
  constexpr int kMaxHidden = kMaxThreads * kVectorElements;
  if (params.hidden_size < 1 || params.hidden_size % kVectorElements != 0 || params.hidden_size > kMaxHidden) {
    return cudaErrorInvalidValue;
  }
  if (params.num_tokens == 0) return cudaSuccess;
  const auto vectors = static_cast<unsigned>(params.hidden_size / kVectorElements);
  const unsigned warps = (vectors + gpu::kWarpThreads - 1) / gpu::kWarpThreads;
  return gpu::Launch(RmsNormKernel, dim3(static_cast<unsigned>(params.num_tokens)), dim3(warps * gpu::kWarpThreads), 0,
                     stream, params);
}

}  // namespace berth::cuda
