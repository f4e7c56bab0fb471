// The description of a model: what is taken from the metadata, what is refused and how it is named.
#include "model/model_config.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "fakes/gguf_builder.h"
#include "model/gguf.h"
#include "refusal.h"

namespace berth {
namespace {

using test::GgufBuilder;
using test::MakeTinyLlama;
using test::ScratchFile;

const char* const kTokens = "tokenizer.ggml.tokens";

absl::StatusOr<ModelConfig> ReadFrom(const std::string& path) {
  absl::StatusOr<std::unique_ptr<GgufFile>> file = GgufFile::Open(path);
  if (!file.ok()) return file.status();
  return ReadModelConfig(**file);
}

ModelConfig Read(const GgufBuilder& builder) {
  const ScratchFile file(builder.Bytes());
  absl::StatusOr<ModelConfig> config = ReadFrom(file.path());
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(ModelConfig{});
}

void ExpectRefused(const GgufBuilder& builder, const std::vector<std::string>& names) {
  test::ExpectRefused(ReadFrom, builder.Bytes(), names);
}

// The tiny llama (hidden 64, heads 4, KV heads 2, ffn 96, vocabulary 320) with one key replaced.
GgufBuilder WithU32(const std::string& key, std::uint32_t value) {
  return MakeTinyLlama().Remove(key).AddU32(key, value);
}
GgufBuilder WithF32(const std::string& key, float value) { return MakeTinyLlama().Remove(key).AddF32(key, value); }
GgufBuilder WithString(const std::string& key, const std::string& value) {
  return MakeTinyLlama().Remove(key).AddString(key, value);
}
GgufBuilder WithU32Array(const std::string& key, const std::vector<std::uint32_t>& values) {
  return MakeTinyLlama().Remove(key).AddU32Array(key, values);
}

TEST(ModelConfig, TakesDefaultsForWhatIsOptional) {
  const ModelConfig config = Read(MakeTinyLlama()
                                      .Remove("general.name")
                                      .Remove("llama.rope.dimension_count")
                                      .Remove("llama.attention.head_count_kv")
                                      .Remove(kTokens));
  EXPECT_EQ(config.name, "");
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.rope_dims, 16);
  EXPECT_EQ(config.rope_theta, 10000.0F);
  EXPECT_EQ(config.rope_scale, 1.0F);
  EXPECT_EQ(config.rope_pairing, RopePairing::kAdjacent);
  EXPECT_EQ(config.vocab_size, 320);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_EQ(config.kv_shape().BytesPerToken(KvDtype::kBf16), 2 * 2 * 4 * 16 * 2);
}

TEST(ModelConfig, TakesHeadsThatDoNotSplitTheHiddenSize) {
  const ModelConfig config = Read(MakeTinyLlama()
                                      .Remove("llama.rope.dimension_count")
                                      .AddU32("llama.attention.key_length", 32)
                                      .AddU32("llama.attention.value_length", 32));
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.rope_dims, 32);
}

TEST(ModelConfig, TakesTheEmbeddingsRowsAsTheVocabulary) {
  EXPECT_EQ(Read(WithU32("llama.vocab_size", 300)).vocab_size, 320);  // padded
  EXPECT_EQ(Read(MakeTinyLlama().Remove(kTokens).AddStringArray(kTokens, {"a", "b"})).vocab_size, 320);
}

TEST(ModelConfig, ReadsRopeScalingUnderBothNames) {
  EXPECT_EQ(Read(WithF32("llama.rope.freq_base", 500000.0F)).rope_theta, 500000.0F);
  EXPECT_EQ(Read(WithF32("llama.rope.scaling.factor", 4.0F).AddString("llama.rope.scaling.type", "linear")).rope_scale,
            4.0F);
  EXPECT_EQ(Read(WithF32("llama.rope.scaling.factor", 4.0F)).rope_scale, 4.0F);
  EXPECT_EQ(Read(WithF32("llama.rope.scale_linear", 2.0F)).rope_scale, 2.0F);
  EXPECT_EQ(Read(WithF32("llama.rope.scaling.factor", 4.0F).AddString("llama.rope.scaling.type", "none")).rope_scale,
            1.0F);
}

TEST(ModelConfig, KeepsTheContextInsideTheAttentionWindow) {
  EXPECT_EQ(Read(MakeTinyLlama()).context_tokens, 256);
  EXPECT_EQ(Read(WithU32("llama.attention.sliding_window", 100)).context_tokens, 100);
  EXPECT_EQ(Read(WithU32("llama.attention.sliding_window", 1000)).context_tokens, 256);
  EXPECT_EQ(Read(WithU32("llama.attention.sliding_window", 0)).context_tokens, 256);
  // What may be asked for instead: anything without a window, and never more than the window.
  EXPECT_GT(Read(MakeTinyLlama()).max_context_tokens, 1 << 20);
  EXPECT_EQ(Read(WithU32("llama.attention.sliding_window", 1000)).max_context_tokens, 1000);
}

TEST(ModelConfig, TakesPerLayerNumbersThatAgree) {
  EXPECT_EQ(Read(WithU32Array("llama.attention.head_count", {4, 4})).heads, 4);
  EXPECT_EQ(
      Read(MakeTinyLlama().Remove("llama.attention.head_count_kv").AddI32Array("llama.attention.head_count_kv", {2, 2}))
          .kv_heads,
      2);
  ExpectRefused(WithU32Array("llama.attention.head_count_kv", {2, 4}),
                {"'llama.attention.head_count_kv'", "differs between layers", "2, then 4 at layer 1"});
  ExpectRefused(WithU32Array("llama.feed_forward_length", {0, 0}), {"'llama.feed_forward_length'", "outside 1 to"});
  ExpectRefused(WithU32Array("llama.attention.head_count", {}), {"'llama.attention.head_count'", "outside 1 to 1024"});
}

TEST(ModelConfig, CleansTheNameForLogs) {
  EXPECT_EQ(Read(WithString("general.name",
                            "a\nb\x1B"
                            "c\xC3\xA9"))
                .name,
            "a?b?c??");
  EXPECT_EQ(Read(WithString("general.name", std::string(5000, 'n'))).name.size(), 256U);
}

TEST(ModelConfig, RefusesOtherArchitecturesByName) {
  for (const char* architecture : {"qwen2", "gemma3", "mamba", "llama4", "", "LLAMA"}) {
    ExpectRefused(WithString("general.architecture", architecture),
                  {"architecture '" + std::string(architecture) + "' is not served", "served: 'llama'"});
  }
  ExpectRefused(WithU32("general.architecture", 3), {"'general.architecture' is a uint32, not a string"});
}

TEST(ModelConfig, NamesEachMissingKey) {
  for (const char* key :
       {"general.architecture", "llama.block_count", "llama.context_length", "llama.embedding_length",
        "llama.feed_forward_length", "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"}) {
    const ScratchFile file(MakeTinyLlama().Remove(key).Bytes());
    const absl::Status status = ReadFrom(file.path()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_EQ(std::string(status.message()), file.path() + ": metadata key '" + key + "' is missing");
  }
}

// llama.cpp PR25821 (a table of 512 layers), CVE-2024-8063 (wrong type, then a division by zero).
TEST(ModelConfig, BoundsEveryCount) {
  ExpectRefused(WithU32("llama.block_count", 513), {"'llama.block_count' is 513, outside 1 to 512"});
  ExpectRefused(WithString("llama.block_count", "5"), {"'llama.block_count' is a string, not an integer"});
  ExpectRefused(WithU32Array("llama.block_count", {5}), {"'llama.block_count' is an array, not an integer"});
  for (const char* key :
       {"llama.block_count", "llama.context_length", "llama.embedding_length", "llama.feed_forward_length",
        "llama.attention.head_count", "llama.attention.head_count_kv", "llama.attention.key_length",
        "llama.attention.value_length", "llama.rope.dimension_count", "llama.vocab_size"}) {
    const std::string quoted = "'" + std::string(key) + "'";
    ExpectRefused(WithU32(key, 0), {quoted + " is 0, outside 1 to"});
    ExpectRefused(WithU32(key, 0xFFFFFFFF), {quoted + " is 4294967295, outside 1 to"});
    ExpectRefused(MakeTinyLlama().Remove(key).AddI32(key, -1), {quoted + " is -1, outside 1 to"});
    ExpectRefused(MakeTinyLlama().Remove(key).AddU64(key, (1ULL << 32U) + 1),
                  {quoted + " is 4294967297, outside 1 to"});
    ExpectRefused(WithF32(key, 4.0F), {quoted + " is a float32, not an integer"});
  }
}

TEST(ModelConfig, BoundsEveryFloat) {
  for (const char* key : {"llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base", "llama.rope.scaling.factor",
                          "llama.rope.scale_linear"}) {
    const std::string quoted = "'" + std::string(key) + "'";
    ExpectRefused(WithF32(key, 0.0F), {quoted + " is 0, outside (0,"});
    ExpectRefused(WithF32(key, -1.0F), {quoted + " is -1, outside (0,"});
    ExpectRefused(WithF32(key, std::numeric_limits<float>::quiet_NaN()), {quoted + " is nan, not a finite number"});
    ExpectRefused(WithF32(key, std::numeric_limits<float>::infinity()), {quoted + " is inf, not a finite number"});
    ExpectRefused(WithF32(key, 1e30F), {quoted + " is 1e+30, outside (0,"});
    ExpectRefused(MakeTinyLlama().Remove(key).AddF64(key, 1e-300), {quoted + " is 1e-300, outside (0,"});
    ExpectRefused(WithU32(key, 1), {quoted + " is a uint32, not a float"});
  }
}

TEST(ModelConfig, RefusesHeadsThatDoNotFit) {
  ExpectRefused(WithU32("llama.attention.head_count", 5).Remove("llama.attention.head_count_kv"),
                {"'llama.attention.head_count' is 5", "does not divide the 64"});
  ExpectRefused(WithU32("llama.attention.head_count_kv", 3), {"'llama.attention.head_count_kv' is 3", "the 4 heads"});
  ExpectRefused(WithU32("llama.attention.head_count_kv", 8), {"'llama.attention.head_count_kv' is 8", "the 4 heads"});
  ExpectRefused(WithU32("llama.attention.head_count", 64).Remove("llama.attention.head_count_kv"),
                {"heads of 1 elements", "even sizes from 2 to 256"});
  ExpectRefused(WithU32("llama.embedding_length", 2048), {"heads of 512 elements", "even sizes from 2 to 256"});
  ExpectRefused(WithU32("llama.attention.key_length", 33).AddU32("llama.attention.value_length", 33),
                {"heads of 33 elements"});
  ExpectRefused(WithU32("llama.attention.key_length", 32), {"keys of 32 elements and values of 16", "only equal"});
  ExpectRefused(WithU32("llama.attention.value_length", 32), {"keys of 16 elements and values of 32", "only equal"});
  ExpectRefused(WithU32("llama.rope.dimension_count", 15), {"'llama.rope.dimension_count' is 15", "even"});
  ExpectRefused(WithU32("llama.rope.dimension_count", 18), {"'llama.rope.dimension_count' is 18", "16 elements"});
}

TEST(ModelConfig, RefusesArithmeticThatIsNotServed) {
  ExpectRefused(WithU32("llama.expert_count", 8), {"'llama.expert_count' is 8", "mixture-of-experts"});
  EXPECT_EQ(Read(WithU32("llama.expert_count", 0)).layers, 2);
  ExpectRefused(WithString("llama.rope.scaling.type", "yarn"),
                {"'llama.rope.scaling.type' is 'yarn'", "'linear', 'none'"});
  ExpectRefused(WithString("llama.rope.scaling.type", "longrope"), {"'longrope'"});
  ExpectRefused(MakeTinyLlama().AddBool("llama.attention.causal", false), {"'llama.attention.causal' is false"});
  EXPECT_EQ(Read(MakeTinyLlama().AddBool("llama.attention.causal", true)).layers, 2);
  for (const char* key :
       {"llama.attention.scale", "llama.attention.clamp_kqv", "llama.attn_logit_softcapping",
        "llama.final_logit_softcapping", "llama.embedding_scale", "llama.residual_scale", "llama.logit_scale"}) {
    ExpectRefused(WithF32(key, 0.5F), {"'" + std::string(key) + "'", "not served"});
  }
}

TEST(ModelConfig, RefusesPartsOfASplitModel) {
  ExpectRefused(MakeTinyLlama().AddU16("split.count", 3), {"one of 3 files of a split model"});
  EXPECT_EQ(Read(MakeTinyLlama().AddU16("split.count", 1)).layers, 2);
}

TEST(ModelConfig, RefusesAVocabularyThatDoesNotMatchTheEmbedding) {
  ExpectRefused(WithU32("llama.embedding_length", 128), {"'token_embd.weight'", "rows of 64 elements", "is 128"});
  ExpectRefused(WithU32("llama.vocab_size", 321), {"'llama.vocab_size'", "320 rows"});
  ExpectRefused(MakeTinyLlama().Remove(kTokens).AddStringArray(kTokens, std::vector<std::string>(321)),
                {"321 tokens", "only 320 rows"});
  ExpectRefused(MakeTinyLlama().Remove(kTokens).AddI8Array(kTokens, {1}),
                {"'tokenizer.ggml.tokens' is an array of int8, not an array of string"});
  ExpectRefused(MakeTinyLlama().RemoveTensor("token_embd.weight"), {"'token_embd.weight' is missing"});
  ExpectRefused(
      MakeTinyLlama().RemoveTensor("token_embd.weight").AddF32Tensor("token_embd.weight", {64}, std::vector<float>(64)),
      {"the tokenizer has 320 tokens", "only 1 rows"});
}

}  // namespace
}  // namespace berth
