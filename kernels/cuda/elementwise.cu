#include "kernels/cuda/elementwise.h"

#include "kernels/cuda/vector.h"
#include "kernels/gpu.h"

namespace berth::cuda {
namespace {

constexpr int kThreads = 256;

// As many blocks as give each thread one vector of a row, within the grid's limit.
unsigned BlocksFor(std::int64_t vectors) {
  constexpr std::int64_t kMaxBlocks = 65535;
  const std::int64_t blocks = (vectors + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

__device__ std::int64_t FirstVector() {
  return static_cast<std::int64_t>(blockIdx.y) * kThreads + static_cast<std::int64_t>(threadIdx.x);
}

__device__ std::int64_t VectorStep() { return static_cast<std::int64_t>(gridDim.y) * kThreads; }

// Both are x · sigmoid(z): (1 + tanh(u)) / 2 = sigmoid(2u).
__device__ float Activate(Activation activation, float x) {
  constexpr float kTwiceRootTwoOverPi = 1.5957691216f;
  const float z = activation == Activation::kSilu ? x : kTwiceRootTwoOverPi * (x + 0.044715f * x * x * x);
  return x / (1.0f + __expf(-z));
}

__global__ void __launch_bounds__(kThreads)
    GatedActivationKernel(const __grid_constant__ GatedActivationParams params) {
  const std::int64_t token = blockIdx.x;
  const std::uint16_t* gates = params.gate_up + token * 2 * params.size;
  for (std::int64_t vector = FirstVector(); vector < params.size / kVectorElements; vector += VectorStep()) {
    const std::int64_t at = vector * kVectorElements;
    const Vector8 gate = LoadVector(gates + at);
    Vector8 result = LoadVector(gates + params.size + at);
#pragma unroll
    for (int i = 0; i < kVectorElements; ++i) result.values[i] *= Activate(params.activation, gate.values[i]);
    StoreVector(params.output + token * params.size + at, result);
  }
}

__global__ void __launch_bounds__(kThreads) EmbeddingKernel(const __grid_constant__ EmbeddingParams params) {
  const std::int64_t token = blockIdx.x;
  const std::int64_t vectors = params.hidden_size / kVectorElements;
  const auto* from = reinterpret_cast<const uint4*>(params.table) + params.token_ids[token] * vectors;
  auto* to = reinterpret_cast<uint4*>(params.output) + token * vectors;
  for (std::int64_t vector = FirstVector(); vector < vectors; vector += VectorStep()) to[vector] = from[vector];
}

// The part that this block of threads copies.
__device__ std::byte* PartOf(const BlockParts& pool, std::int32_t block) {
  return pool.data + blockIdx.z * pool.part_stride + block * pool.block_stride;
}

__global__ void __launch_bounds__(kThreads) BlockCopiesKernel(const __grid_constant__ BlockCopiesParams params) {
  const std::int64_t copy = blockIdx.x;
  const auto* from = reinterpret_cast<const uint4*>(PartOf(params.source, params.from[copy]));
  auto* to = reinterpret_cast<uint4*>(PartOf(params.destination, params.to[copy]));
  const auto vectors = params.part_bytes / static_cast<std::int64_t>(sizeof(uint4));
  for (std::int64_t vector = FirstVector(); vector < vectors; vector += VectorStep()) to[vector] = from[vector];
}

}  // namespace

cudaError_t LaunchGatedActivation(const GatedActivationParams& params, cudaStream_t stream) {
  if (params.size < 1 || params.size % kVectorElements != 0) return cudaErrorInvalidValue;
  if (params.num_tokens == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(params.num_tokens), BlocksFor(params.size / kVectorElements));
  return gpu::Launch(GatedActivationKernel, grid, dim3(kThreads), 0, stream, params);
}

cudaError_t LaunchEmbedding(const EmbeddingParams& params, cudaStream_t stream) {
  if (params.hidden_size < 1 || params.hidden_size % kVectorElements != 0) return cudaErrorInvalidValue;
  if (params.num_tokens == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(params.num_tokens), BlocksFor(params.hidden_size / kVectorElements));
  return gpu::Launch(EmbeddingKernel, grid, dim3(kThreads), 0, stream, params);
}

cudaError_t LaunchBlockCopies(const BlockCopiesParams& params, cudaStream_t stream) {
  constexpr std::int64_t kVectorBytes = sizeof(uint4);
  if (params.part_bytes < 1 || params.part_bytes % kVectorBytes != 0) return cudaErrorInvalidValue;
  for (const BlockParts& pool : {params.source, params.destination}) {
    if (pool.part_stride % kVectorBytes != 0 || pool.block_stride % kVectorBytes != 0) return cudaErrorInvalidValue;
  }
  if (params.num_copies == 0 || params.num_parts == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(params.num_copies), BlocksFor(params.part_bytes / kVectorBytes),
                  static_cast<unsigned>(params.num_parts));
  return gpu::Launch(BlockCopiesKernel, grid, dim3(kThreads), 0, stream, params);
}

}  // namespace berth::cuda
