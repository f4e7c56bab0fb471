#include "runner/cpu/packed_weights.h"

#include <gtest/gtest.h>

#include <vector>

#include "backend_harness.h"
#include "runner/weight_format.h"

namespace berth::test {
namespace {

TinyLlama Llama(std::uint32_t type, bool tied) {
  TinyLlama spec;
  spec.matrix_type = type;
  spec.tied_embeddings = tied;
  return spec;
}

class PackedEmbedding : public testing::TestWithParam<bool> {};  // float32 mode

TEST_P(PackedEmbedding, IsTheFilesRowWhetherTiedOrNot) {
  for (const std::uint32_t type : {gguf_type::kF32, gguf_type::kF16, gguf_type::kQ4_1, gguf_type::kQ8_0}) {
    for (const bool tied : {false, true}) {
      const std::unique_ptr<Model> model = OpenModel(MakeTinyLlama(Llama(type, tied)));
      ASSERT_NE(model, nullptr);
      ThreadPool pool(2, "test");
      const absl::StatusOr<PackedWeights> weights = PackedWeights::Pack(*model, GetParam(), pool);
      ASSERT_TRUE(weights.ok()) << weights.status();
      const GgufTensor& embedding = *model->weights.token_embedding;
      const std::size_t row_bytes = embedding.data.size() / static_cast<std::size_t>(embedding.rows());
      for (const TokenId token : {0, 1, 15, 16, 319}) {
        std::vector<float> expected(static_cast<std::size_t>(model->config.hidden));
        cpu::Dequantize(WeightFormatOf(embedding.type),
                        embedding.data.data() + static_cast<std::size_t>(token) * row_bytes, model->config.hidden,
                        expected.data());
        std::vector<float> got(expected.size());
        weights->Embed(token, got.data());
        EXPECT_EQ(got, expected) << "type " << type << " tied " << tied << " token " << token;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PackedEmbedding, testing::Bool(),
                         [](const auto& test) { return std::string(test.param ? "Float32" : "Default"); });

TEST(PackedWeights, HoldATiedEmbeddingOnce) {
  const auto bytes = [](bool tied) {
    const std::unique_ptr<Model> model = OpenModel(MakeTinyLlama(Llama(gguf_type::kQ8_0, tied)));
    ThreadPool pool(1, "test");
    const absl::StatusOr<PackedWeights> weights = PackedWeights::Pack(*model, false, pool);
    return weights.ok() ? weights->bytes() : 0;
  };
  const std::size_t embedding = 320 * cpu::RowBytes(cpu::WeightFormat::kQ8_0, 64);
  EXPECT_EQ(bytes(false), bytes(true) + embedding);
}

}  // namespace
}  // namespace berth::test
