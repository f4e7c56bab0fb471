#include "kernels/cuda/paged_decode.h"

#include <cmath>

#include "kernels/cuda/decode_tile.h"
#include "kernels/cuda/head_dim_choice.h"
#include "kernels/gpu.h"

namespace berth::cuda {
namespace {

__device__ float* PartialOf(const PagedDecodeParams& params, int sequence, int q_head, int chunk) {
  const std::int64_t index =
      (static_cast<std::int64_t>(sequence) * params.num_q_heads + q_head) * params.num_chunks + chunk;
  return params.partials + index * (params.cache.head_dim + kPartialExtraFloats);
}

// The weight of a part whose largest score is `own` relative to the whole's.
__device__ float Weight(float own, float whole) { return gpu::Exp2(own - (whole == -INFINITY ? 0.0f : whole)); }

// Joins the warps' results, in the order of the warps, to the chunk's.
template <typename Shared>
__device__ void StoreChunk(const PagedDecodeParams& params, const Shared& shared, const DecodeChunk& chunk) {
  constexpr int kDim = Shared::kHeadDim;
  for (int element = static_cast<int>(threadIdx.x); element < chunk.rows * kDim; element += kDecodeThreads) {
    const int row = element / kDim;
    const int dim = element % kDim;
    float highest = -INFINITY;
#pragma unroll
    for (int warp = 0; warp < kDecodeWarps; ++warp) highest = fmaxf(highest, shared.highest[warp][row]);
    float sum = 0.0f;
    float value = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kDecodeWarps; ++warp) {
      const float weight = Weight(shared.highest[warp][row], highest);
      sum += weight * shared.sum[warp][row];
      value += weight * shared.memory.joined[warp][row][dim];
    }
    const int q_head = chunk.first_q_head + row;
    if (chunk.length <= params.chunk_tokens) {
      const std::int64_t at = (static_cast<std::int64_t>(chunk.sequence) * params.num_q_heads + q_head) * kDim + dim;
      params.output[at] = __bfloat16_as_ushort(__float2bfloat16_rn(sum > 0.0f ? value / sum : 0.0f));
    } else {
      float* partial = PartialOf(params, chunk.sequence, q_head, chunk.number);
      partial[dim] = value;
      if (dim == 0) {
        partial[kDim] = highest;
        partial[kDim + 1] = sum;
      }
    }
  }
}

// A block for each chunk, KV head (and 16 of its query heads) and sequence. The query heads of a KV head are the rows
// of the tensor cores' tiles. Each warp takes every fourth tile of 16 tokens, loads it itself and keeps its own
// softmax, so that warps meet only at the end.
template <int kHeadDim, KvElement kElement>
__global__ void __launch_bounds__(kDecodeThreads) PagedDecodeKernel(const __grid_constant__ PagedDecodeParams params) {
  using Tile = DecodeTile<kHeadDim, kElement>;
  BERTH_DYNAMIC_SHARED(typename Tile::Shared, shared);
  const DecodeChunk chunk = FindChunk(params);
  if (chunk.source.begin >= chunk.length && chunk.number > 0) return;  // the whole block
  Tile tile(params, chunk, shared);
  tile.StartFirstLoads();
  tile.LoadQueries();
  for (int number = 0; number < tile.count(); ++number) {
    gpu::WaitCopies<Tile::kStages - 1>();
    __syncwarp();  // the other lanes' copies
    tile.Attend(number);
    __syncwarp();  // all lanes have read the stage
    tile.StartLoad(number + Tile::kStages);
  }
  gpu::WaitCopies<0>();
  __syncthreads();  // the stages' memory is used again
  tile.StoreJoined();
  __syncthreads();
  StoreChunk(params, shared, chunk);
}

template <int kHeadDim>
__global__ void __launch_bounds__(kHeadDim) MergeChunksKernel(const __grid_constant__ PagedDecodeParams params) {
  const int q_head = static_cast<int>(blockIdx.x);
  const int sequence = static_cast<int>(blockIdx.y);
  const int length = params.kv_lengths[sequence];
  if (length <= params.chunk_tokens) return;  // its only chunk has stored the result
  const int chunks = (length + params.chunk_tokens - 1) / params.chunk_tokens;
  const int dim = static_cast<int>(threadIdx.x);
  const float* partials = PartialOf(params, sequence, q_head, 0);
  constexpr int kStride = kHeadDim + kPartialExtraFloats;
  float highest = -INFINITY;
  for (int chunk = 0; chunk < chunks; ++chunk) highest = fmaxf(highest, partials[chunk * kStride + kHeadDim]);
  float sum = 0.0f;
  float value = 0.0f;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const float* partial = partials + chunk * kStride;
    const float weight = Weight(partial[kHeadDim], highest);
    sum += weight * partial[kHeadDim + 1];
    value += weight * partial[dim];
  }
  const std::int64_t at = (static_cast<std::int64_t>(sequence) * params.num_q_heads + q_head) * kHeadDim + dim;
  params.output[at] = __bfloat16_as_ushort(__float2bfloat16_rn(value / sum));
}

template <int kHeadDim, KvElement kElement>
cudaError_t LaunchFor(const PagedDecodeParams& params, cudaStream_t stream) {
  const int group = params.num_q_heads / params.cache.num_kv_heads;
  const int row_tiles = (group + kDecodeRows - 1) / kDecodeRows;
  const dim3 grid(static_cast<unsigned>(params.num_chunks),
                  static_cast<unsigned>(params.cache.num_kv_heads * row_tiles),
                  static_cast<unsigned>(params.num_sequences));
  const cudaError_t error = gpu::Launch(PagedDecodeKernel<kHeadDim, kElement>, grid, dim3(kDecodeThreads),
                                        sizeof(typename DecodeTile<kHeadDim, kElement>::Shared), stream, params);
  if (error != cudaSuccess || params.num_chunks == 1) return error;
  const dim3 heads(static_cast<unsigned>(params.num_q_heads), static_cast<unsigned>(params.num_sequences));
  return gpu::Launch(MergeChunksKernel<kHeadDim>, heads, dim3(kHeadDim), 0, stream, params);
}

template <int kHeadDim>
cudaError_t LaunchFor(const PagedDecodeParams& params, cudaStream_t stream) {
  return params.cache.element == KvElement::kBf16 ? LaunchFor<kHeadDim, KvElement::kBf16>(params, stream)
                                                  : LaunchFor<kHeadDim, KvElement::kInt8>(params, stream);
}

}  // namespace

cudaError_t LaunchPagedDecode(const PagedDecodeParams& params, cudaStream_t stream) {
  const KvCache& cache = params.cache;
  if (cache.num_kv_heads < 1 || params.num_q_heads < 1 || params.num_q_heads % cache.num_kv_heads != 0 ||
      params.chunk_tokens < 64 || params.chunk_tokens % 64 != 0 || params.num_chunks < 1 || cache.block_tokens < 2) {
    return cudaErrorInvalidValue;
  }
  if (params.num_sequences == 0) return cudaSuccess;
  return WithHeadDim(cache.head_dim, [&](auto head_dim) { return LaunchFor<head_dim()>(params, stream); });
}

}  // namespace berth::cuda
