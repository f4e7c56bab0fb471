// Weights by role: what must be there, in which shape, and that nothing is left over.
#include "model/model.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "fakes/gguf_builder.h"
#include "refusal.h"

namespace berth {
namespace {

using test::GgufBuilder;
using test::MakeTinyLlama;
using test::ScratchFile;
using namespace test::gguf_type;

void ExpectRefused(const GgufBuilder& builder, const std::vector<std::string>& names) {
  test::ExpectRefused(&Model::Open, builder.Bytes(), names);
}

std::unique_ptr<Model> Open(const GgufBuilder& builder) {
  const ScratchFile file(builder.Bytes());
  absl::StatusOr<std::unique_ptr<Model>> model = Model::Open(file.path());
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

// The tiny llama with one tensor replaced by zeros of another type or shape.
GgufBuilder With(const std::string& name, std::uint32_t type, const std::vector<std::uint64_t>& dims) {
  return MakeTinyLlama().RemoveTensor(name).AddTensor(name, type, dims, std::string(1 << 17, '\0'));
}

const std::vector<std::string>& AllTensors() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {"token_embd.weight", "output_norm.weight"};
    for (const char* layer : {"blk.0.", "blk.1."}) {
      for (const char* role :
           {"attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"}) {
        all.push_back(std::string(layer) + role + ".weight");
      }
    }
    return all;
  }();
  return names;
}

TEST(ModelOpen, FindsEveryWeightByItsRole) {
  const std::unique_ptr<Model> model = Open(MakeTinyLlama());
  ASSERT_NE(model, nullptr);
  const ModelWeights& weights = model->weights;
  EXPECT_EQ(weights.token_embedding->name, "token_embd.weight");
  EXPECT_EQ(weights.output_norm->name, "output_norm.weight");
  EXPECT_EQ(weights.output->name, "output.weight");
  EXPECT_EQ(weights.rope_factors, nullptr);
  ASSERT_EQ(weights.layers.size(), 2U);
  const LayerWeights& layer = weights.layers[1];
  EXPECT_EQ(layer.attn_norm->name, "blk.1.attn_norm.weight");
  EXPECT_EQ(layer.q->name, "blk.1.attn_q.weight");
  EXPECT_EQ(layer.k->name, "blk.1.attn_k.weight");
  EXPECT_EQ(layer.v->name, "blk.1.attn_v.weight");
  EXPECT_EQ(layer.attn_output->name, "blk.1.attn_output.weight");
  EXPECT_EQ(layer.ffn_norm->name, "blk.1.ffn_norm.weight");
  EXPECT_EQ(layer.ffn_gate->name, "blk.1.ffn_gate.weight");
  EXPECT_EQ(layer.ffn_up->name, "blk.1.ffn_up.weight");
  EXPECT_EQ(layer.ffn_down->name, "blk.1.ffn_down.weight");
  EXPECT_EQ(model->parameters(), 2 * 320 * 64 + 64 + 2 * (2 * 64 + 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96));
}

TEST(ModelOpen, TakesMatricesOfEveryServedType) {
  for (const std::uint32_t type : {kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ5_0, kQ8_0}) {
    const std::unique_ptr<Model> model = Open(MakeTinyLlama({.matrix_type = type}));
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->weights.layers[0].q->type, static_cast<GgufTensorType>(type));
  }
  const std::unique_ptr<Model> model =
      Open(MakeTinyLlama({.layers = 1, .hidden = 256, .ffn = 256, .matrix_type = kQ6_K, .tied_embeddings = true}));
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->weights.layers[0].ffn_down->data.size(), 256U * 210U);
}

TEST(ModelOpen, UsesTheEmbeddingWhereThereIsNoOutput) {
  const std::unique_ptr<Model> model = Open(MakeTinyLlama({.tied_embeddings = true}));
  ASSERT_NE(model, nullptr);
  EXPECT_TRUE(model->config.tied_embeddings);
  EXPECT_EQ(model->weights.output, model->weights.token_embedding);
  EXPECT_EQ(model->parameters(), 320 * 64 + 64 + 2 * (2 * 64 + 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96));
}

TEST(ModelOpen, NamesEachMissingTensor) {
  for (const std::string& name : AllTensors()) {
    ExpectRefused(MakeTinyLlama().RemoveTensor(name), {"tensor '" + name + "' is missing"});
  }
  ExpectRefused(MakeTinyLlama().Remove("llama.block_count").AddU32("llama.block_count", 512),
                {"'blk.2.attn_norm.weight' is missing"});
}

TEST(ModelOpen, RefusesEachTensorOfAnotherShape) {
  for (const std::string& name : AllTensors()) {
    if (name == "token_embd.weight") continue;  // it decides the vocabulary
    ExpectRefused(With(name, kF32, {64, 65}), {"tensor '" + name + "' has the shape 64x65; the metadata asks for "});
    ExpectRefused(With(name, kF32, {65}), {"tensor '" + name + "' has the shape 65;"});
  }
  ExpectRefused(With("output.weight", kF32, {64, 319}), {"'output.weight'", "64x319", "64x320"});
  ExpectRefused(With("blk.0.ffn_gate.weight", kF32, {96, 64}), {"96x64", "64x96"});
  ExpectRefused(With("blk.0.attn_q.weight", kF32, {64, 32, 2}), {"64x32x2", "64x64"});
  ExpectRefused(With("token_embd.weight", kF32, {64, 160, 2}), {"64x160x2", "64x320"});
  ExpectRefused(With("blk.0.attn_norm.weight", kF32, {64, 1}), {"64x1", "asks for 64"});
}

TEST(ModelOpen, RefusesNormsThatAreNotF32) {
  for (const char* name : {"output_norm.weight", "blk.0.attn_norm.weight", "blk.1.ffn_norm.weight"}) {
    ExpectRefused(With(name, kF16, {64}), {name, "is of type F16; only F32"});
    ExpectRefused(With(name, kQ8_0, {64}), {name, "is of type Q8_0; only F32"});
  }
}

TEST(ModelOpen, RefusesRowsThatAreNoWholeBlocks) {
  ExpectRefused(With("blk.0.attn_q.weight", kQ6_K, {64, 64}), {"'blk.0.attn_q.weight'", "64 elements", "256", "Q6_K"});
  ExpectRefused(With("blk.0.attn_q.weight", kQ4_K, {256, 16}), {"'blk.0.attn_q.weight'", "Q4_K", "served types"});
}

TEST(ModelOpen, RefusesTensorsThatItWouldHaveToIgnore) {
  for (const char* name : {"blk.0.attn_q.bias", "blk.0.attn_q_norm.weight", "blk.2.attn_q.weight", "output.bias",
                           "blk.0.ffn_gate_exps.weight", "rope_freqs", "BLK.0.attn_q.weight"}) {
    ExpectRefused(MakeTinyLlama().AddF32Tensor(name, {64}, std::vector<float>(64)),
                  {"tensor '" + std::string(name) + "' has no place in a llama model"});
  }
}

TEST(ModelOpen, TakesRopeFactorsThatCanDivide) {
  const auto with_factors = [](std::vector<float> factors) {
    return MakeTinyLlama().AddF32Tensor("rope_freqs.weight", {factors.size()}, factors);
  };
  std::vector<float> factors(8, 1.0F);
  factors[7] = 8.0F;
  const std::unique_ptr<Model> model = Open(with_factors(factors));
  ASSERT_NE(model, nullptr);
  ASSERT_NE(model->weights.rope_factors, nullptr);
  EXPECT_EQ(model->weights.rope_factors->elements(), 8);
  for (const float bad :
       {0.0F, -1.0F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    factors[3] = bad;
    ExpectRefused(with_factors(factors), {"'rope_freqs.weight' element 3 is", "not a positive number"});
  }
  ExpectRefused(with_factors(std::vector<float>(16, 1.0F)), {"'rope_freqs.weight'", "16", "asks for 8"});
  ExpectRefused(With("rope_freqs.weight", kF16, {8}), {"'rope_freqs.weight'", "only F32"});
}

TEST(ModelOpen, TakesMatricesOfOneRowStoredAsVectors) {
  const std::unique_ptr<Model> model = Open(MakeTinyLlama({.ffn = 1})
                                                .RemoveTensor("blk.0.ffn_up.weight")
                                                .AddF32Tensor("blk.0.ffn_up.weight", {64}, std::vector<float>(64)));
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->weights.layers[0].ffn_up->rows(), 1);
}

TEST(ModelOpen, KeepsViewsGoodWhenTheModelMoves) {
  std::unique_ptr<Model> model = Open(MakeTinyLlama());
  ASSERT_NE(model, nullptr);
  const Model moved = std::move(*model);
  model.reset();
  EXPECT_EQ(moved.weights.layers[0].q->data.size(), 64U * 64U * 4U);
  EXPECT_EQ(moved.file->FindTensor("blk.0.attn_q.weight"), moved.weights.layers[0].q);
}

}  // namespace
}  // namespace berth
