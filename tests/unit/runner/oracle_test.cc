// The runner against a naive float64 forward pass.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "backend_harness.h"
#include "fakes/test_data.h"
#include "oracle_difference.h"

namespace berth::test {
namespace {

double LargestDifference(const Model& model, const CpuBackendOptions& options, const std::vector<TokenId>& ids) {
  const std::unique_ptr<Backend> backend = MakeBackend(model, options);
  return backend == nullptr ? HUGE_VAL : LargestDifferenceFromOracle(model, *backend, ids, 33);
}

// kFloat32: float32 mode; otherwise the default mode.
CpuBackendOptions Options(KvDtype kv_dtype, std::int32_t block_tokens, std::int64_t tokens, int threads = 2) {
  CpuBackendOptions options;
  options.threads = threads;
  options.compute = kv_dtype == KvDtype::kFloat32 ? ComputeMode::kFloat32 : ComputeMode::kDefault;
  options.kv_dtype = kv_dtype;
  options.pool = {static_cast<std::int32_t>(CeilDiv(tokens, block_tokens)), block_tokens};
  options.max_step_tokens = 64;
  return options;
}

// In the default mode with float weights nothing is approximated but K and V, and the oracle rounds these alike: what
// is left are the places where a float32 sum is rounded to the other side. Quantised weights bring int8 activations.
constexpr double kRoundingBound = 0.05;
constexpr double kActivationBound = 0.5;

class StoriesOracle : public testing::TestWithParam<const char*> {};

TEST_P(StoriesOracle, EveryLogProbabilityAgrees) {
  BERTH_REQUIRE_SHARED(path, std::string("models/stories260K-") + GetParam() + ".gguf");
  const std::unique_ptr<Model> model = OpenModel(path);
  ASSERT_NE(model, nullptr);
  const std::vector<TokenId> ids = RandomIds(model->config.context_tokens, model->config.vocab_size, 1);
  const std::int32_t tokens = model->config.context_tokens;
  const bool float_weights = GetParam()[0] == 'f';
  const double bound = float_weights ? kRoundingBound : 2 * kActivationBound;  // heads of 8: little to average over
  EXPECT_LT(LargestDifference(*model, Options(KvDtype::kFloat32, 16, tokens), ids), 1e-4);
  for (const KvDtype dtype : {KvDtype::kBf16, KvDtype::kInt8}) {
    EXPECT_LT(LargestDifference(*model, Options(dtype, 16, tokens), ids), bound) << KvDtypeName(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(All, StoriesOracle, testing::Values("f32", "f16", "q4_k_m", "q6_k"),
                         [](const auto& test) { return std::string(test.param); });

struct Shape {
  const char* name;
  TinyLlama spec;
  std::int32_t block_tokens;
  std::int32_t rope_dims;  // 0: as the head
  bool halves;
  bool rope_factors;
  bool mixed = false;  // one matrix of some projections has another format
};

TinyLlama Llama(std::uint32_t hidden, std::uint32_t heads, std::uint32_t kv_heads, std::uint32_t type, bool tied) {
  TinyLlama spec;
  spec.hidden = hidden;
  spec.heads = heads;
  spec.kv_heads = kv_heads;
  spec.matrix_type = type;
  spec.tied_embeddings = tied;
  spec.context_tokens = 400;
  return spec;
}

// Q6_K takes rows of a multiple of 256.
TinyLlama SixBitLlama() {
  TinyLlama spec = Llama(256, 4, 2, gguf_type::kQ6_K, false);
  spec.ffn = 512;
  return spec;
}

const Shape kShapes[] = {
    {"HeadDim8Gqa4", Llama(64, 8, 2, gguf_type::kF32, false), 16, 0, false, false},
    {"HeadDim64Gqa3", Llama(192, 3, 1, gguf_type::kQ8_0, true), 1, 0, true, false},
    {"HeadDim80PartlyRotated", Llama(320, 4, 4, gguf_type::kQ4_1, false), 256, 40, false, true},
    {"HeadDim80PartlyRotatedHalves", Llama(320, 4, 2, gguf_type::kBF16, true), 16, 24, true, true},
    {"HeadDim2", Llama(32, 16, 1, gguf_type::kF16, true), 2, 0, false, false},
    {"HeadDim256", Llama(256, 1, 1, gguf_type::kQ5_0, false), 64, 0, false, false},
    {"SixBit", SixBitLlama(), 16, 0, false, false},
    {"ManyQueryHeads", Llama(256, 64, 1, gguf_type::kQ4_0, false), 16, 0, true, false},
    {"MixedFormats", Llama(64, 4, 2, gguf_type::kQ4_1, false), 16, 0, false, false, true},
};

class SyntheticOracle : public testing::TestWithParam<Shape> {};

TEST_P(SyntheticOracle, EveryLogProbabilityAgrees) {
  const Shape& shape = GetParam();
  GgufBuilder builder = MakeTinyLlama(shape.spec);
  if (shape.rope_dims > 0) {
    builder.Remove("llama.rope.dimension_count")
        .AddU32("llama.rope.dimension_count", static_cast<std::uint32_t>(shape.rope_dims));
  }
  if (shape.rope_factors) {
    std::vector<float> factors(static_cast<std::size_t>(shape.rope_dims / 2));
    for (std::size_t i = 0; i < factors.size(); ++i) factors[i] = 1.0F + 0.25F * static_cast<float>(i);
    builder.AddF32Tensor("rope_freqs.weight", {factors.size()}, factors);
    builder.AddF32("llama.rope.scaling.factor", 4.0F);
  }
  if (shape.mixed) {
    const std::string v = RandomTensorData(gguf_type::kF16, 32 * 64, 0.2F, 77);
    const std::string up = RandomTensorData(gguf_type::kQ8_0, 96 * 64, 0.2F, 78);
    builder.RemoveTensor("blk.1.attn_v.weight").AddTensor("blk.1.attn_v.weight", gguf_type::kF16, {64, 32}, v);
    builder.RemoveTensor("blk.0.ffn_up.weight").AddTensor("blk.0.ffn_up.weight", gguf_type::kQ8_0, {64, 96}, up);
  }
  const std::unique_ptr<Model> model = OpenModel(builder);
  ASSERT_NE(model, nullptr);
  if (shape.halves) model->config.rope_pairing = RopePairing::kHalves;
  const std::vector<TokenId> ids = RandomIds(290, model->config.vocab_size, 3);
  for (const int threads : {1, 3}) {
    EXPECT_LT(LargestDifference(*model, Options(KvDtype::kFloat32, shape.block_tokens, 290, threads), ids), 1e-4)
        << threads << " threads";
  }
  const std::uint32_t type = shape.spec.matrix_type;
  const bool float_weights = type == gguf_type::kF32 || type == gguf_type::kF16 || type == gguf_type::kBF16;
  const double bound = float_weights ? kRoundingBound : kActivationBound;
  for (const KvDtype dtype : {KvDtype::kBf16, KvDtype::kInt8}) {
    EXPECT_LT(LargestDifference(*model, Options(dtype, shape.block_tokens, 290), ids), bound) << KvDtypeName(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SyntheticOracle, testing::ValuesIn(kShapes),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace berth::test
