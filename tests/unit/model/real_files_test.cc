// Files that other programs wrote.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "fakes/gguf_builder.h"
#include "fakes/test_data.h"
#include "model/gguf.h"
#include "model/model.h"

namespace berth {
namespace {

std::unique_ptr<Model> OpenModel(const std::string& path) {
  absl::StatusOr<std::unique_ptr<Model>> model = Model::Open(path);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

TEST(RealModel, SmolLm2IsDescribedAndEveryWeightFound) {
  BERTH_REQUIRE_DEFAULT_MODEL(path);
  const std::unique_ptr<Model> model = OpenModel(path);
  ASSERT_NE(model, nullptr);
  const ModelConfig& config = model->config;
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.name, "Smollm2 135M 8k Lc100K Mix1 Ep2");
  EXPECT_EQ(config.layers, 30);
  EXPECT_EQ(config.hidden, 576);
  EXPECT_EQ(config.heads, 9);
  EXPECT_EQ(config.kv_heads, 3);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.ffn, 1536);
  EXPECT_EQ(config.vocab_size, 49152);
  EXPECT_EQ(config.context_tokens, 8192);
  EXPECT_FLOAT_EQ(config.norm_epsilon, 1e-5F);
  EXPECT_EQ(config.rope_dims, 64);
  EXPECT_EQ(config.rope_theta, 100000.0F);
  EXPECT_EQ(config.rope_scale, 1.0F);
  EXPECT_EQ(config.rope_pairing, RopePairing::kAdjacent);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(model->weights.output, model->weights.token_embedding);
  EXPECT_EQ(model->weights.rope_factors, nullptr);
  EXPECT_EQ(model->weights.layers.size(), 30U);
  EXPECT_EQ(model->weights.layers[29].k->rows(), 192);
  EXPECT_EQ(model->weights.layers[29].k->type, GgufTensorType::kQ4_1);
  EXPECT_EQ(model->parameters(), 134515008);
}

class Stories : public testing::TestWithParam<const char*> {};

TEST_P(Stories, OpensWithItsTensorsInPlace) {
  BERTH_REQUIRE_SHARED(path, std::string("models/stories260K-") + GetParam() + ".gguf");
  const std::unique_ptr<Model> model = OpenModel(path);
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->config.layers, 5);
  EXPECT_EQ(model->config.hidden, 64);
  EXPECT_EQ(model->config.heads, 8);
  EXPECT_EQ(model->config.kv_heads, 4);
  EXPECT_EQ(model->config.head_dim, 8);
  EXPECT_EQ(model->config.ffn, 172);
  EXPECT_EQ(model->config.vocab_size, 512);
  EXPECT_EQ(model->config.rope_theta, 10000.0F);
  EXPECT_EQ(model->parameters(), 292800);
}

INSTANTIATE_TEST_SUITE_P(RealModel, Stories, testing::Values("f32", "f16", "q4_k_m", "q6_k"),
                         [](const auto& test) { return std::string(test.param); });

class Vocabulary : public testing::TestWithParam<const char*> {};

TEST_P(Vocabulary, OpensAsAFileButIsNoModel) {
  BERTH_REQUIRE_SHARED(path, std::string("vocab/ggml-vocab-") + GetParam() + ".gguf");
  absl::StatusOr<std::unique_ptr<GgufFile>> file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->tensors().empty());
  EXPECT_EQ((*file)->FindTensor("token_embd.weight"), nullptr);
  absl::StatusOr<const GgufArray*> tokens = (*file)->GetArray("tokenizer.ggml.tokens", GgufValueType::kString);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_GT((*tokens)->size(), 30000);
  EXPECT_FALSE(Model::Open(path).ok());
}

INSTANTIATE_TEST_SUITE_P(RealFile, Vocabulary, testing::Values("gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(TinyLlamaModel, OpensWithEveryServedType) {
  using namespace test::gguf_type;
  for (const std::uint32_t type : {kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ5_0, kQ8_0}) {
    const test::ScratchFile file(test::MakeTinyLlama({.matrix_type = type}).Bytes());
    EXPECT_TRUE(Model::Open(file.path()).ok()) << Model::Open(file.path()).status();
  }
  const test::ScratchFile file(
      test::MakeTinyLlama({.layers = 1, .hidden = 256, .ffn = 256, .matrix_type = kQ6_K, .tied_embeddings = true})
          .Bytes());
  const std::unique_ptr<Model> model = OpenModel(file.path());
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->weights.layers[0].ffn_down->data.size(), 256U * 210U);
}

}  // namespace
}  // namespace berth
