#include "case.h"
#include "kernels/cuda/paged_decode.h"
#include "paged_context.h"

namespace berth::bench {
namespace {

using cuda::KvElement;

Case DecodeCase(const AttentionShape& shape, std::int32_t chunk_tokens) {
  const double rows = 2.0 * shape.sequences * shape.context * shape.kv_heads;  // of keys and values
  const double row_bytes = shape.element == KvElement::kInt8 ? shape.head_dim + 2 : shape.head_dim * 2;
  const auto make = [shape, chunk_tokens](Arena& arena) -> Launch {
    const PagedContext context = MakeContext(shape, arena);
    const std::int64_t q_stride = std::int64_t{shape.q_heads()} * shape.head_dim;
    cuda::PagedDecodeParams params{.q = arena.RandomBf16(shape.sequences * q_stride),
                                   .q_stride = q_stride,
                                   .cache = context.cache,
                                   .block_tables = context.block_tables,
                                   .kv_lengths = context.lengths,
                                   .output = arena.Allocate<std::uint16_t>(shape.sequences * q_stride),
                                   .partials = nullptr,
                                   .max_blocks = shape.blocks(),
                                   .num_sequences = shape.sequences,
                                   .num_q_heads = shape.q_heads(),
                                   .chunk_tokens = chunk_tokens,
                                   .num_chunks = (shape.context + chunk_tokens - 1) / chunk_tokens,
                                   .scale = shape.score_scale()};
    params.partials = arena.Allocate<float>(cuda::PagedDecodePartialFloats(params));
    return [params](cudaStream_t stream) { BERTH_BENCH_CUDA(cuda::LaunchPagedDecode, params, stream); };
  };
  return {.name = shape.Name("decode"), .cost = {.bytes = rows * row_bytes, .flops = 0}, .make = make};
}

}  // namespace

void AddDecode(const Settings& settings, std::vector<Case>& cases) {
  std::vector<std::int32_t> batches = {1, 32, 128, 256};
  std::vector<std::int32_t> contexts = {1024, 4096, 16384};
  std::int32_t kv_heads = 8;
  if (settings.extent == Extent::kQuick) {
    batches = {1, 32, 256};
    contexts = {1024, 4096};
  } else if (settings.extent == Extent::kToy) {
    batches = {2};
    contexts = {40};
    kv_heads = 1;
  }
  for (const std::int32_t head_dim : {128, 64}) {
    for (const KvElement element : {KvElement::kBf16, KvElement::kInt8}) {
      for (const std::int32_t group : {4, 8}) {
        for (const std::int32_t context : contexts) {
          for (const std::int32_t batch : batches) {
            cases.push_back(
                DecodeCase({batch, context, kv_heads, group, head_dim, element}, settings.decode_chunk_tokens));
          }
        }
      }
    }
  }
}

}  // namespace berth::bench
