// The synthetic model of gguf_builder.h.
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <random>

#include "fakes/gguf_builder.h"

namespace berth::test {
namespace {

// Sizes in bytes, and where in a block the two-byte scale and the minimum are (-1: none), of the block types.
struct BlockLayout {
  std::uint32_t type;
  std::uint64_t elements;
  std::uint64_t bytes;
  int scale_at;
  int min_at;
  float levels;  // the largest code times the scale is the largest value
};
constexpr std::array kBlockLayouts = {
    BlockLayout{gguf_type::kQ4_0, 32, 18, 0, -1, 8},
    BlockLayout{gguf_type::kQ4_1, 32, 20, 0, 2, 7.5},
    BlockLayout{gguf_type::kQ5_0, 32, 22, 0, -1, 16},
    BlockLayout{gguf_type::kQ8_0, 32, 34, 0, -1, 127},
    BlockLayout{gguf_type::kQ6_K, 256, 210, 208, -1, 32.0F * 127.0F},
};

// For values that F16 holds as normal numbers, cut rather than rounded.
std::uint16_t ToF16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 31U;
  const int exponent = static_cast<int>((bits >> 23U) & 0xFFU) - 127 + 15;
  if (exponent <= 0) return static_cast<std::uint16_t>(sign << 15U);
  return static_cast<std::uint16_t>(sign << 15U | static_cast<std::uint32_t>(exponent) << 10U | (bits >> 13U & 0x3FFU));
}

void PutF16(std::string* block, std::uint64_t at, float value) {
  const std::uint16_t half = ToF16(value);
  (*block)[at] = static_cast<char>(half & 0xFFU);
  (*block)[at + 1] = static_cast<char>(half >> 8U);
}

std::string RandomBlocks(const BlockLayout& layout, std::uint64_t elements, float scale, std::mt19937_64& random) {
  std::string out(elements / layout.elements * layout.bytes, '\0');
  for (char& byte : out) byte = static_cast<char>(random());
  for (std::uint64_t block = 0; block < out.size(); block += layout.bytes) {
    PutF16(&out, block + layout.scale_at, scale / layout.levels);
    if (layout.min_at >= 0) PutF16(&out, block + layout.min_at, -scale);
  }
  return out;
}

// <unk> <s> </s>, the 256 bytes, the space, letters, and pairs of letters until there are enough.
std::vector<std::string> MakeTokens(std::uint32_t count) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    tokens.push_back(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">");
  }
  tokens.emplace_back("\xE2\x96\x81");
  for (char a = 'a'; a <= 'z'; ++a) tokens.emplace_back(1, a);
  for (char a = 'a'; a <= 'z'; ++a) {
    for (char b = 'a'; b <= 'z'; ++b) tokens.push_back({a, b});
  }
  if (count < 260 || count > tokens.size()) {
    std::cerr << "a tiny llama has from 260 to " << tokens.size() << " tokens, not " << count << '\n';
    std::abort();
  }
  tokens.resize(count);
  return tokens;
}

void AddVocabulary(GgufBuilder* builder, std::uint32_t count) {
  std::vector<float> scores(count);
  std::vector<std::int32_t> types(count, 1);
  for (std::uint32_t i = 0; i < count; ++i) {
    scores[i] = i < 260 ? 0.0F : -static_cast<float>(i - 260);
    if (i == 0) types[i] = 2;
    if (i == 1 || i == 2) types[i] = 3;
    if (i >= 3 && i < 259) types[i] = 6;
  }
  builder->AddString("tokenizer.ggml.model", "llama")
      .AddStringArray("tokenizer.ggml.tokens", MakeTokens(count))
      .AddF32Array("tokenizer.ggml.scores", scores)
      .AddI32Array("tokenizer.ggml.token_type", types)
      .AddU32("tokenizer.ggml.unknown_token_id", 0)
      .AddU32("tokenizer.ggml.bos_token_id", 1)
      .AddU32("tokenizer.ggml.eos_token_id", 2);
}

}  // namespace

std::string RandomTensorData(std::uint32_t type, std::uint64_t elements, float scale, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (const BlockLayout& layout : kBlockLayouts) {
    if (layout.type == type) return RandomBlocks(layout, elements, scale, random);
  }
  std::string out;
  for (std::uint64_t i = 0; i < elements; ++i) {
    // 24 random bits: the same values with every standard library.
    const float value = (static_cast<float>(random() >> 40U) / 8388608.0F - 1.0F) * scale;
    if (type == gguf_type::kF32) out += BytesOf(value);
    if (type == gguf_type::kF16) out += BytesOf(ToF16(value));
    if (type == gguf_type::kBF16)
      out += BytesOf(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U));
  }
  return out;
}

GgufBuilder MakeTinyLlama(const TinyLlama& spec) {
  GgufBuilder builder;
  builder.AddString("general.architecture", "llama")
      .AddString("general.name", "tiny")
      .AddU32("llama.block_count", spec.layers)
      .AddU32("llama.context_length", spec.context_tokens)
      .AddU32("llama.embedding_length", spec.hidden)
      .AddU32("llama.feed_forward_length", spec.ffn)
      .AddU32("llama.attention.head_count", spec.heads)
      .AddU32("llama.attention.head_count_kv", spec.kv_heads)
      .AddF32("llama.attention.layer_norm_rms_epsilon", 1e-5F)
      .AddU32("llama.rope.dimension_count", spec.hidden / spec.heads);
  AddVocabulary(&builder, spec.vocab_size);

  std::uint64_t seed = spec.seed;
  const auto matrix = [&](const std::string& name, std::uint64_t rows, std::uint64_t cols) {
    // The spread that keeps a product's variance at its input's: uniform on ±sqrt(3 / inputs).
    const float scale = std::sqrt(3.0F / static_cast<float>(cols));
    builder.AddTensor(name, spec.matrix_type, {cols, rows},
                      RandomTensorData(spec.matrix_type, rows * cols, scale, ++seed));
  };
  const auto norm = [&](const std::string& name) {
    builder.AddF32Tensor(name, {spec.hidden}, std::vector<float>(spec.hidden, 1.0F));
  };
  const std::uint64_t kv_rows = std::uint64_t{spec.hidden / spec.heads} * spec.kv_heads;
  matrix("token_embd.weight", spec.vocab_size, spec.hidden);
  norm("output_norm.weight");
  if (!spec.tied_embeddings) matrix("output.weight", spec.vocab_size, spec.hidden);
  for (std::uint32_t layer = 0; layer < spec.layers; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    norm(prefix + "attn_norm.weight");
    matrix(prefix + "attn_q.weight", spec.hidden, spec.hidden);
    matrix(prefix + "attn_k.weight", kv_rows, spec.hidden);
    matrix(prefix + "attn_v.weight", kv_rows, spec.hidden);
    matrix(prefix + "attn_output.weight", spec.hidden, spec.hidden);
    norm(prefix + "ffn_norm.weight");
    matrix(prefix + "ffn_gate.weight", spec.ffn, spec.hidden);
    matrix(prefix + "ffn_up.weight", spec.ffn, spec.hidden);
    matrix(prefix + "ffn_down.weight", spec.hidden, spec.ffn);
  }
  return builder;
}

}  // namespace berth::test
