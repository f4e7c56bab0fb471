#include "kernels/cuda/paged_prefill.h"

#include "kernels/cuda/head_dim_choice.h"
#include "kernels/cuda/prefill_load.h"
#include "kernels/cuda/prefill_tile.h"
#include "kernels/gpu.h"

namespace berth::cuda {
namespace {

// A block for each tile of query rows and KV head. Its warps share the tiles of keys and values; each has its own rows
// and their softmax, and takes no part in tiles that its rows do not see.
template <int kDim, KvElement kElement>
__global__ void __launch_bounds__(kPrefillThreads, PrefillWarp<kDim, kElement>::kBlocks)
    PagedPrefillKernel(const __grid_constant__ PagedPrefillParams params) {
  using Warp = PrefillWarp<kDim, kElement>;
  BERTH_DYNAMIC_SHARED(typename Warp::Shared, shared);
  const PrefillBlock& block = shared.block;
  if (threadIdx.x == 0) shared.block = FindPrefillBlock<PrefillSizes<kDim>::kRows>(params);
  __syncthreads();
  if (block.rows <= 0) return;  // the whole block
  Warp warp(params, shared);
  PrefillLoader<kDim, kElement> loader(params, block.source, shared.slots);
  constexpr int kKeys = Warp::kKeys;
  for (int first = block.source.begin / kKeys * kKeys; first < block.source.end; first += kKeys) {
    const bool sees = warp.Sees(first);
    typename Warp::Weights weights;
    const auto& keys = loader.Keys(first);
    if (sees) warp.Score(keys, first, weights);
    const auto& values = loader.Values(first);
    if (sees) warp.AddValues(values, weights);
  }
  warp.StoreOutput();
}

template <int kDim>
cudaError_t LaunchFor(const PagedPrefillParams& params, cudaStream_t stream) {
  constexpr int kParts = kPrefillTileRows / PrefillSizes<kDim>::kRows;
  const dim3 grid(static_cast<unsigned>(params.num_tiles * kParts), static_cast<unsigned>(params.cache.num_kv_heads));
  return params.cache.element == KvElement::kBf16
             ? gpu::Launch(PagedPrefillKernel<kDim, KvElement::kBf16>, grid, dim3(kPrefillThreads),
                           sizeof(PrefillShared<kDim, KvElement::kBf16>), stream, params)
             : gpu::Launch(PagedPrefillKernel<kDim, KvElement::kInt8>, grid, dim3(kPrefillThreads),
                           sizeof(PrefillShared<kDim, KvElement::kInt8>), stream, params);
}

}  // namespace

cudaError_t LaunchPagedPrefill(const PagedPrefillParams& params, cudaStream_t stream) {
  const KvCache& cache = params.cache;
  if (cache.num_kv_heads < 1 || params.num_q_heads < 1 || params.num_q_heads % cache.num_kv_heads != 0 ||
      cache.block_tokens < 2 || (cache.block_tokens & (cache.block_tokens - 1)) != 0 || params.window < 0 ||
      !(params.scale > 0.0f)) {
    return cudaErrorInvalidValue;
  }
  if (params.num_tiles == 0) return cudaSuccess;
  return WithHeadDim(cache.head_dim, [&](auto head_dim) { return LaunchFor<head_dim()>(params, stream); });
}

}  // namespace berth::cuda
