// The CUDA backend against a naive float64 forward pass.
#include <string>

#include "../oracle_difference.h"
#include "cuda_fixture.h"
#include "fakes/test_data.h"

namespace berth::test {
namespace {

struct OracleCase {
  const char* name;
  TinyLlama spec;
  KvDtype kv_dtype = KvDtype::kBf16;
  std::int32_t block_tokens = 16;
  bool halves = false;
};

TinyLlama Llama(std::uint32_t hidden, std::uint32_t heads, std::uint32_t kv_heads, std::uint32_t type,
                bool tied = false) {
  TinyLlama spec;
  spec.hidden = hidden;
  spec.heads = heads;
  spec.kv_heads = kv_heads;
  spec.matrix_type = type;
  spec.tied_embeddings = tied;
  return spec;
}

TinyLlama WithFfn(TinyLlama spec, std::uint32_t ffn) {
  spec.ffn = ffn;
  return spec;
}

const OracleCase kCases[] = {
    {"Dim8", Llama(64, 8, 2, gguf_type::kF32)},
    {"Dim64", Llama(256, 4, 2, gguf_type::kBF16)},
    {"Dim64Int8", Llama(256, 4, 2, gguf_type::kBF16), KvDtype::kInt8, 32},
    {"Dim80Halves", Llama(320, 4, 1, gguf_type::kF16, true), KvDtype::kBf16, 2, true},
    {"OddFfn", WithFfn(Llama(64, 4, 4, gguf_type::kF32), 100)},
    {"Q4_0", Llama(256, 4, 2, gguf_type::kQ4_0)},
    {"Q4_1", Llama(256, 4, 2, gguf_type::kQ4_1)},
    {"Q5_0", Llama(64, 4, 2, gguf_type::kQ5_0)},
    {"Q8_0Tied", Llama(64, 4, 2, gguf_type::kQ8_0, true)},
    {"Q6_K", WithFfn(Llama(256, 4, 2, gguf_type::kQ6_K), 512)},
};

class CudaOracle : public CudaBackendTest, public testing::WithParamInterface<OracleCase> {};

// Activations are bfloat16, rounded a dozen times between the embedding and a logit to 2^-9 of themselves. Random
// weights have logits of a few units.
constexpr double kBound = 0.15;
// A trained model's go to 20 and more, where one such rounding of all that a logit sums up is worth 0.04.
constexpr double kStoriesBound = 0.5;

TEST_P(CudaOracle, EveryLogProbabilityAgrees) {
  const OracleCase& test = GetParam();
  const std::unique_ptr<Model> model = OpenModel(MakeTinyLlama(test.spec));
  ASSERT_NE(model, nullptr);
  if (test.halves) model->config.rope_pairing = RopePairing::kHalves;
  CudaBackendOptions options = Options(test.kv_dtype);
  options.pool = {64, test.block_tokens};
  options.max_top_logprobs = model->config.vocab_size;
  const std::unique_ptr<Backend> backend = Make(*model, options);
  ASSERT_NE(backend, nullptr);
  const std::vector<TokenId> ids = RandomIds(70, model->config.vocab_size, 3);
  // Many tokens at once, and few: products of other kinds.
  for (const std::int32_t chunk : {33, 5}) {
    EXPECT_LT(LargestDifferenceFromOracle(*model, *backend, ids, chunk), kBound) << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaOracle, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

class CudaStoriesOracle : public CudaBackendTest, public testing::WithParamInterface<const char*> {};

TEST_P(CudaStoriesOracle, EveryLogProbabilityAgrees) {
  BERTH_REQUIRE_SHARED(path, std::string("models/stories260K-") + GetParam() + ".gguf");
  const std::unique_ptr<Model> model = OpenModel(path);
  ASSERT_NE(model, nullptr);
  CudaBackendOptions options = Options();
  options.max_top_logprobs = model->config.vocab_size;
  const std::unique_ptr<Backend> backend = Make(*model, options);
  ASSERT_NE(backend, nullptr);
  const std::vector<TokenId> ids = RandomIds(100, model->config.vocab_size, 1);
  for (const std::int32_t chunk : {33, 5}) {
    EXPECT_LT(LargestDifferenceFromOracle(*model, *backend, ids, chunk), kStoriesBound) << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaStoriesOracle, testing::Values("f32", "f16", "q4_k_m", "q6_k"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace berth::test
