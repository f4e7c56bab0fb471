#include "kernels/cuda/plain_attention.h"

#include <cmath>

#include "kernels/cuda/kv_address.h"
#include "kernels/gpu.h"

namespace berth::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;  // positions of a tile: a thread scores one of them
constexpr int kMaxHeadDim = 256;
static_assert(kMaxHeadDim / 2 <= kThreads);

struct Shared {
  float query[kMaxHeadDim];  // times the scale and log2(e)
  float weights[kThreads];   // of the tile's positions, times the scale of their values
  std::int64_t rows[kThreads];
  float warps[kWarps];
  float2 joined[kThreads];
};

// Elements 2 · couple and the next of a key or value.
template <KvElement kElement>
__device__ float2 LoadCouple(const void* elements, std::int64_t row, int couple) {
  if constexpr (kElement == KvElement::kBf16) {
    const std::uint16_t* data = static_cast<const std::uint16_t*>(elements) + row;
    return gpu::UnpackBf16(reinterpret_cast<const std::uint32_t*>(data)[couple]);
  } else {
    const signed char* data = static_cast<const signed char*>(elements) + row;
    const char2 codes = reinterpret_cast<const char2*>(data)[couple];
    return {static_cast<float>(codes.x), static_cast<float>(codes.y)};
  }
}

template <KvElement kElement>
__device__ float Score(const KvCache& cache, const Shared& shared, std::int64_t row) {
  float score = 0.0f;
  for (int couple = 0; couple < cache.head_dim / 2; ++couple) {
    const float2 key = LoadCouple<kElement>(cache.keys, row, couple);
    score += shared.query[2 * couple] * key.x;
    score += shared.query[2 * couple + 1] * key.y;
  }
  return score;
}

// Of all threads' values, in each of them. A barrier is among it.
__device__ float BlockMaximum(Shared& shared, float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(gpu::kAllLanes, value, distance));
  }
  if (threadIdx.x % 32 == 0) shared.warps[threadIdx.x / 32] = value;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) value = fmaxf(value, shared.warps[warp]);
  return value;
}

__device__ float BlockSum(Shared& shared, float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(gpu::kAllLanes, value, distance);
  if (threadIdx.x % 32 == 0) shared.warps[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0.0f;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += shared.warps[warp];
  return sum;
}

__device__ void LoadQuery(const PlainAttentionParams& params, Shared& shared) {
  constexpr float kLog2E = 1.4426950408889634f;
  const int dim = static_cast<int>(threadIdx.x) * 2;
  if (dim < params.cache.head_dim) {
    const std::uint16_t* query = params.q + static_cast<std::int64_t>(blockIdx.x) * params.q_stride +
                                 static_cast<std::int64_t>(blockIdx.y) * params.cache.head_dim;
    const float2 couple = gpu::UnpackBf16(reinterpret_cast<const std::uint32_t*>(query)[threadIdx.x]);
    const float scale = params.scale * kLog2E;
    shared.query[dim] = couple.x * scale;
    shared.query[dim + 1] = couple.y * scale;
  }
  __syncthreads();
}

// The slices' sums, in their order, over the weights' sum.
__device__ void StoreOutput(const PlainAttentionParams& params, Shared& shared, float2 values, float weights,
                            int slices) {
  const int thread = static_cast<int>(threadIdx.x);
  const int couples = params.cache.head_dim / 2;
  shared.joined[thread] = values;
  const float sum = BlockSum(shared, weights);
  if (thread >= couples) return;  // no barrier follows
  float2 value = {0.0f, 0.0f};
  for (int slice = 0; slice < slices; ++slice) {
    value.x += shared.joined[slice * couples + thread].x;
    value.y += shared.joined[slice * couples + thread].y;
  }
  const std::int64_t head = static_cast<std::int64_t>(blockIdx.x) * params.num_q_heads + blockIdx.y;
  auto* output = reinterpret_cast<std::uint32_t*>(params.output + head * params.cache.head_dim);
  output[thread] = sum > 0.0f ? gpu::PackBf16(value.x / sum, value.y / sum) : 0u;
}

// A block for each row and query head. A tile of positions is scored with a thread for each of them; then its values
// are summed with a thread for two neighbouring dimensions of every slices-th position.
template <KvElement kElement>
__global__ void __launch_bounds__(kThreads) PlainAttentionKernel(const __grid_constant__ PlainAttentionParams params) {
  BERTH_SHARED(Shared, shared);
  const KvCache& cache = params.cache;
  const int thread = static_cast<int>(threadIdx.x);
  const int kv_head = static_cast<int>(blockIdx.y) / (params.num_q_heads / cache.num_kv_heads);
  const int length = params.kv_lengths[blockIdx.x];
  const int begin = params.window > 0 ? max(0, length - params.window) : 0;
  const std::int64_t table = static_cast<std::int64_t>(params.sequences[blockIdx.x]) * params.max_blocks;
  const KvAddress address(cache, params.block_tables + table, kv_head);
  const int couples = cache.head_dim / 2;
  const int slices = kThreads / couples;
  const int slice = thread / couples;
  const int couple = thread % couples;
  LoadQuery(params, shared);

  float highest = -INFINITY;
  float sum = 0.0f;
  float2 values = {0.0f, 0.0f};
  for (int first = begin / kThreads * kThreads; first < length; first += kThreads) {
    const int position = first + thread;
    const bool valid = position >= begin && position < length;
    float score = -INFINITY;
    float value_scale = 1.0f;
    std::int64_t row = 0;
    if (valid) {
      const std::int32_t block = address.BlockOf(position);
      row = address.Row(cache, block, position);
      score = Score<kElement>(cache, shared, row);
      if constexpr (kElement == KvElement::kInt8) {
        const std::int64_t scale = address.Scale(cache, block, position);
        score *= __half2float(__ushort_as_half(cache.key_scales[scale]));
        value_scale = __half2float(__ushort_as_half(cache.value_scales[scale]));
      }
    }
    // A tile holds one valid position at least.
    const float new_highest = fmaxf(highest, BlockMaximum(shared, score));
    const float correction = gpu::Exp2(highest - new_highest);
    const float weight = valid ? gpu::Exp2(score - new_highest) : 0.0f;
    highest = new_highest;
    sum = sum * correction + weight;
    // Behind BlockMaximum's barrier: all threads are done with the tile before.
    shared.rows[thread] = row;
    shared.weights[thread] = weight * value_scale;
    __syncthreads();
    values.x *= correction;
    values.y *= correction;
    if (slice < slices) {
      const int end = min(kThreads, length - first);
      // The slice's positions of the tile, from the first valid one on.
      const int before = max(0, begin - first - slice);
      for (int at = slice + (before + slices - 1) / slices * slices; at < end; at += slices) {
        const float2 value = LoadCouple<kElement>(cache.values, shared.rows[at], couple);
        values.x += shared.weights[at] * value.x;
        values.y += shared.weights[at] * value.y;
      }
    }
  }
  StoreOutput(params, shared, values, sum, slices);
}

}  // namespace

cudaError_t LaunchPlainAttention(const PlainAttentionParams& params, cudaStream_t stream) {
  const KvCache& cache = params.cache;
  if (cache.head_dim < 2 || cache.head_dim % 2 != 0 || cache.head_dim > kMaxHeadDim || cache.num_kv_heads < 1 ||
      params.num_q_heads < 1 || params.num_q_heads % cache.num_kv_heads != 0 || cache.block_tokens < 1 ||
      (cache.block_tokens & (cache.block_tokens - 1)) != 0 || params.window < 0) {
    return cudaErrorInvalidValue;
  }
  if (params.num_rows == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(params.num_rows), static_cast<unsigned>(params.num_q_heads));
  return cache.element == KvElement::kBf16
             ? gpu::Launch(PlainAttentionKernel<KvElement::kBf16>, grid, dim3(kThreads), 0, stream, params)
             : gpu::Launch(PlainAttentionKernel<KvElement::kInt8>, grid, dim3(kThreads), 0, stream, params);
}

}  // namespace berth::cuda
