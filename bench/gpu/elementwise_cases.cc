#include <algorithm>
#include <numeric>
#include <random>

#include "case.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rope_kv_write.h"
#include "model_shapes.h"

namespace berth::bench {
namespace {

using cuda::KvElement;

std::string NameOf(const std::string& what, const ModelShape& model, std::int32_t tokens) {
  return what + "/" + model.name + "/tokens" + std::to_string(tokens);
}

Case RmsNormCase(const ModelShape& model, std::int32_t tokens) {
  const std::int64_t elements = std::int64_t{tokens} * model.hidden;
  const auto make = [model, tokens, elements](Arena& arena) -> Launch {
    const cuda::RmsNormParams params{.input = arena.RandomBf16(elements),
                                     .residual = arena.RandomBf16(elements),
                                     .weight = arena.RandomBf16(model.hidden),
                                     .output = arena.Allocate<std::uint16_t>(elements),
                                     .num_tokens = tokens,
                                     .hidden_size = model.hidden,
                                     .epsilon = 1e-5f};
    return [params](cudaStream_t stream) { BERTH_BENCH_CUDA(cuda::LaunchRmsNorm, params, stream); };
  };
  // Input, residual read and written, output.
  const double bytes = 2.0 * (4.0 * static_cast<double>(elements) + model.hidden);
  return {.name = NameOf("rms_norm", model, tokens), .cost = {.bytes = bytes, .flops = 0}, .make = make};
}

Case GateCase(const ModelShape& model, std::int32_t tokens, cuda::Activation activation) {
  const std::int64_t elements = std::int64_t{tokens} * model.feed_forward;
  const auto make = [model, tokens, elements, activation](Arena& arena) -> Launch {
    const cuda::GatedActivationParams params{.gate_up = arena.RandomBf16(2 * elements),
                                             .output = arena.Allocate<std::uint16_t>(elements),
                                             .num_tokens = tokens,
                                             .size = model.feed_forward,
                                             .activation = activation};
    return [params](cudaStream_t stream) { BERTH_BENCH_CUDA(cuda::LaunchGatedActivation, params, stream); };
  };
  const char* what = activation == cuda::Activation::kSilu ? "gate/silu" : "gate/gelu";
  return {.name = NameOf(what, model, tokens),
          .cost = {.bytes = 6.0 * static_cast<double>(elements), .flops = 0},
          .make = make};
}

// Each token to a place of its own in the cache.
Case RopeCase(const ModelShape& model, std::int32_t tokens, KvElement element) {
  const bool int8 = element == KvElement::kInt8;
  const auto make = [model, tokens, element, int8](Arena& arena) -> Launch {
    constexpr std::int32_t kBlockTokens = 16;
    const std::int64_t blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
    const std::int64_t block_rows = std::int64_t{model.kv_heads} * kBlockTokens;
    const std::int64_t cache_bytes = blocks * block_rows * model.head_dim * (int8 ? 1 : 2);
    const std::int64_t heads = model.q_heads + 2 * model.kv_heads;
    std::vector<std::int32_t> positions(static_cast<std::size_t>(tokens));
    std::iota(positions.begin(), positions.end(), 0);
    std::vector<std::int64_t> slots(positions.begin(), positions.end());
    std::shuffle(slots.begin(), slots.end(), std::minstd_rand(4));
    const std::int64_t angles = std::int64_t{tokens} * model.head_dim / 2;
    const std::vector<float> ones(1024, 0.70710678f);
    const cuda::RopeKvWriteParams params{
        .qkv = arena.RandomBf16(tokens * heads * model.head_dim),
        .positions = arena.Upload(positions),
        .slots = arena.Upload(slots),
        .cosines = arena.Fill(angles, ones),
        .sines = arena.Fill(angles, ones),
        .cache = {.keys = arena.Allocate(cache_bytes),
                  .values = arena.Allocate(cache_bytes),
                  .key_scales = int8 ? arena.Allocate<std::uint16_t>(blocks * block_rows) : nullptr,
                  .value_scales = int8 ? arena.Allocate<std::uint16_t>(blocks * block_rows) : nullptr,
                  .block_stride = block_rows * model.head_dim,
                  .scale_block_stride = block_rows,
                  .num_kv_heads = model.kv_heads,
                  .head_dim = model.head_dim,
                  .block_tokens = kBlockTokens,
                  .element = element},
        .num_tokens = tokens,
        .num_q_heads = model.q_heads,
        .rotary_pairs = model.head_dim / 2,
        .pairs = cuda::RopePairs::kHalves};
    return [params](cudaStream_t stream) { BERTH_BENCH_CUDA(cuda::LaunchRopeKvWrite, params, stream); };
  };
  // Queries read and written, keys and values read and stored, two angles' tables.
  const double kv_row_bytes = int8 ? model.head_dim + 2 : 2 * model.head_dim;
  const double token_bytes = 4.0 * model.q_heads * model.head_dim +
                             2.0 * model.kv_heads * (2 * model.head_dim + kv_row_bytes) + 4.0 * model.head_dim;
  return {.name = NameOf(int8 ? "rope_kv_write/int8" : "rope_kv_write/bf16", model, tokens),
          .cost = {.bytes = tokens * token_bytes, .flops = 0},
          .make = make};
}

Case EmbeddingCase(const ModelShape& model, std::int32_t tokens) {
  const auto make = [model, tokens](Arena& arena) -> Launch {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
    std::minstd_rand generator(5);
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(generator() % static_cast<unsigned>(model.vocabulary));
    const cuda::EmbeddingParams params{.token_ids = arena.Upload(ids),
                                       .table = arena.RandomBf16(std::int64_t{model.vocabulary} * model.hidden),
                                       .output = arena.Allocate<std::uint16_t>(std::int64_t{tokens} * model.hidden),
                                       .num_tokens = tokens,
                                       .hidden_size = model.hidden};
    return [params](cudaStream_t stream) { BERTH_BENCH_CUDA(cuda::LaunchEmbedding, params, stream); };
  };
  return {.name = NameOf("embedding", model, tokens),
          .cost = {.bytes = 4.0 * tokens * model.hidden, .flops = 0},
          .make = make};
}

// Blocks of the keys and the values of all layers, as when sequences come to differ.
Case BlockCopiesCase(std::int32_t parts, std::int32_t copies, std::int64_t part_bytes) {
  const auto make = [=](Arena& arena) -> Launch {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(2 * copies));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), std::minstd_rand(7));
    const std::int32_t* blocks = arena.Upload(ids);
    const std::int64_t part_stride = 2 * copies * part_bytes;
    const cuda::BlockParts pool = {arena.RandomBytes(parts * part_stride), part_stride, part_bytes};
    const cuda::BlockCopiesParams params{.from = blocks,
                                         .to = blocks + copies,
                                         .source = pool,
                                         .destination = pool,
                                         .part_bytes = part_bytes,
                                         .num_parts = parts,
                                         .num_copies = copies};
    return [params](cudaStream_t stream) { BERTH_BENCH_CUDA(cuda::LaunchBlockCopies, params, stream); };
  };
  return {.name = "block_copies/parts" + std::to_string(parts) + "/copies" + std::to_string(copies),
          .cost = {.bytes = 2.0 * parts * copies * static_cast<double>(part_bytes), .flops = 0},
          .make = make};
}

}  // namespace

void AddElementwise(const Settings& settings, std::vector<Case>& cases) {
  const bool toy = settings.extent == Extent::kToy;
  for (const ModelShape& model : ModelsOf(settings.extent)) {
    for (const std::int32_t tokens : toy ? std::vector<std::int32_t>{3} : std::vector<std::int32_t>{1, 256, 8192}) {
      cases.push_back(RmsNormCase(model, tokens));
      cases.push_back(RopeCase(model, tokens, KvElement::kBf16));
      cases.push_back(RopeCase(model, tokens, KvElement::kInt8));
      cases.push_back(GateCase(model, tokens, cuda::Activation::kSilu));
      cases.push_back(GateCase(model, tokens, cuda::Activation::kGeluTanh));
      cases.push_back(EmbeddingCase(model, tokens));
    }
  }
  // A block of 16 tokens of 8 KV heads of 128 bfloat16.
  constexpr std::int64_t kPartBytes = std::int64_t{16} * 8 * 128 * 2;
  cases.push_back(toy ? BlockCopiesCase(2, 3, 256) : BlockCopiesCase(64, 64, kPartBytes));
}

}  // namespace berth::bench
