#include "kernels/cuda/rms_norm.h"

#include "kernels/cuda/reduce.h"
#include "kernels/cuda/vector.h"
#include "kernels/gpu.h"

namespace berth::cuda {
namespace {

constexpr int kMaxThreads = 1024;

// A block for each row, kVectors vectors of it for each thread, so that the row is read once and stays in registers.
template <int kVectors>
__global__ void __launch_bounds__(kMaxThreads) RmsNormKernel(const __grid_constant__ RmsNormParams params) {
  const std::size_t row = static_cast<std::size_t>(blockIdx.x) * params.hidden_size;
  const auto column = [](int i) { return static_cast<int>(threadIdx.x + i * blockDim.x) * kVectorElements; };
  Vector8 x[kVectors] = {};
  Vector8 weight[kVectors] = {};
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (column(i) >= params.hidden_size) continue;
    x[i] = LoadVector(params.input + row + column(i));
    weight[i] = LoadVector(params.weight + column(i));
    if (params.residual != nullptr) {
      const Vector8 residual = LoadVector(params.residual + row + column(i));
#pragma unroll
      for (int j = 0; j < kVectorElements; ++j) x[i].values[j] += residual.values[j];
      StoreVector(params.residual + row + column(i), x[i]);
    }
#pragma unroll
    for (int j = 0; j < kVectorElements; ++j) squares += x[i].values[j] * x[i].values[j];
  }
  const float scale = rsqrtf(BlockSum(squares) / static_cast<float>(params.hidden_size) + params.epsilon);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (column(i) >= params.hidden_size) continue;
#pragma unroll
    for (int j = 0; j < kVectorElements; ++j) x[i].values[j] *= scale * weight[i].values[j];
    StoreVector(params.output + row + column(i), x[i]);
  }
}

template <int kVectors>
cudaError_t LaunchFor(const RmsNormParams& params, cudaStream_t stream) {
  constexpr int kThreadElements = kVectors * kVectorElements;
  const auto threads = static_cast<unsigned>((params.hidden_size + kThreadElements - 1) / kThreadElements);
  const unsigned warps = (threads + gpu::kWarpThreads - 1) / gpu::kWarpThreads;
  return gpu::Launch(RmsNormKernel<kVectors>, dim3(static_cast<unsigned>(params.num_tokens)),
                     dim3(warps * gpu::kWarpThreads), 0, stream, params);
}

}  // namespace

cudaError_t LaunchRmsNorm(const RmsNormParams& params, cudaStream_t stream) {
  constexpr int kMaxHidden = kMaxThreads * kVectorElements;
  if (params.hidden_size < 1 || params.hidden_size % kVectorElements != 0 || params.hidden_size > 2 * kMaxHidden) {
    return cudaErrorInvalidValue;
  }
  if (params.num_tokens == 0) return cudaSuccess;
  return params.hidden_size <= kMaxHidden ? LaunchFor<1>(params, stream) : LaunchFor<2>(params, stream);
}

}  // namespace berth::cuda
