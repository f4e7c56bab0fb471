#include "case.h"
#include "kernels/cuda/paged_prefill.h"
#include "paged_context.h"

namespace berth::bench {
namespace {

using cuda::KvElement;

// The whole context is the prompt.
Case PrefillCase(const AttentionShape& shape) {
  // Query token i attends to i + 1 positions; q · k and the weighted sum take a multiplication and an addition each.
  const double pairs = 0.5 * shape.context * (shape.context + 1.0);
  const double flops = 4.0 * shape.sequences * shape.q_heads() * shape.head_dim * pairs;
  const auto make = [shape](Arena& arena) -> Launch {
    RequireTunedHeadDim(shape);
    const PagedContext context = MakeContext(shape, arena);
    const std::int64_t q_stride = std::int64_t{shape.q_heads()} * shape.head_dim;
    const std::int64_t tokens = std::int64_t{shape.sequences} * shape.context;
    std::vector<std::int32_t> begins;
    std::vector<cuda::PrefillTile> tiles;
    for (std::int32_t sequence = 0; sequence <= shape.sequences; ++sequence) begins.push_back(sequence * shape.context);
    // In the backend's order.
    for (std::int32_t sequence = 0; sequence < shape.sequences; ++sequence) {
      const std::int32_t count = cuda::PrefillTiles(shape.context, shape.q_heads(), shape.kv_heads);
      for (std::int32_t tile = 0; tile < count; ++tile) tiles.push_back({sequence, tile * cuda::kPrefillTileRows});
    }
    const cuda::PagedPrefillParams params{.q = arena.RandomBf16(tokens * q_stride),
                                          .q_stride = q_stride,
                                          .cache = context.cache,
                                          .block_tables = context.block_tables,
                                          .token_begins = arena.Upload(begins),
                                          .kv_lengths = context.lengths,
                                          .tiles = arena.Upload(tiles),
                                          .output = arena.Allocate<std::uint16_t>(tokens * q_stride),
                                          .max_blocks = shape.blocks(),
                                          .num_tiles = static_cast<std::int32_t>(tiles.size()),
                                          .num_q_heads = shape.q_heads(),
                                          .window = 0,
                                          .scale = shape.score_scale()};
    return [params](cudaStream_t stream) { BERTH_BENCH_CUDA(cuda::LaunchPagedPrefill, params, stream); };
  };
  return {.name = shape.Name("prefill"), .cost = {.bytes = 0, .flops = flops}, .make = make};
}

}  // namespace

void AddPrefill(const Settings& settings, std::vector<Case>& cases) {
  const bool toy = settings.extent == Extent::kToy;
  // Of a step's size: short prompts come together.
  constexpr std::int32_t kStepTokens = 16384;
  const std::vector<std::int32_t> contexts =
      toy ? std::vector<std::int32_t>{24} : std::vector<std::int32_t>{1024, 4096, 16384};
  for (const std::int32_t head_dim : {128, 64}) {
    for (const KvElement element : {KvElement::kBf16, KvElement::kInt8}) {
      for (const std::int32_t context : contexts) {
        cases.push_back(PrefillCase({toy ? 2 : kStepTokens / context, context, toy ? 1 : 8, 4, head_dim, element}));
      }
    }
  }
}

}  // namespace berth::bench
