#include <numeric>

#include "case.h"
#include "kernels/cuda/paged_decode.h"
#include "kernels/cuda/plain_attention.h"
#include "paged_context.h"

namespace berth::bench {
namespace {

using cuda::KvElement;

// Of keys and values.
double ContextBytes(const AttentionShape& shape) {
  const double rows = 2.0 * shape.sequences * shape.context * shape.kv_heads;
  return rows * (shape.element == KvElement::kInt8 ? shape.head_dim + 2 : shape.head_dim * 2);
}

Case DecodeCase(const AttentionShape& shape, std::int32_t chunk_tokens) {
  const auto make = [shape, chunk_tokens](Arena& arena) -> Launch {
    RequireTunedHeadDim(shape);
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
  return {.name = shape.Name("decode"), .cost = {.bytes = ContextBytes(shape), .flops = 0}, .make = make};
}

// What serves the head dimensions that the tuned kernels are not made for.
Case PlainCase(const AttentionShape& shape) {
  const auto make = [shape](Arena& arena) -> Launch {
    const PagedContext context = MakeContext(shape, arena);
    const std::int64_t q_stride = std::int64_t{shape.q_heads()} * shape.head_dim;
    std::vector<std::int32_t> sequences(static_cast<std::size_t>(shape.sequences));
    std::iota(sequences.begin(), sequences.end(), 0);
    const cuda::PlainAttentionParams params{.q = arena.RandomBf16(shape.sequences * q_stride),
                                            .q_stride = q_stride,
                                            .cache = context.cache,
                                            .block_tables = context.block_tables,
                                            .sequences = arena.Upload(sequences),
                                            .kv_lengths = context.lengths,
                                            .output = arena.Allocate<std::uint16_t>(shape.sequences * q_stride),
                                            .max_blocks = shape.blocks(),
                                            .num_rows = shape.sequences,
                                            .num_q_heads = shape.q_heads(),
                                            .window = 0,
                                            .scale = shape.score_scale()};
    return [params](cudaStream_t stream) { BERTH_BENCH_CUDA(cuda::LaunchPlainAttention, params, stream); };
  };
  return {.name = shape.Name("decode_plain"), .cost = {.bytes = ContextBytes(shape), .flops = 0}, .make = make};
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
  for (const KvElement element : {KvElement::kBf16, KvElement::kInt8}) {
    const bool toy = settings.extent == Extent::kToy;
    cases.push_back(PlainCase({toy ? 2 : 32, toy ? 40 : 1024, kv_heads, 4, 72, element}));
  }
}

}  // namespace berth::bench
