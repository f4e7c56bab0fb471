// Texts that anyone may send and that make careless tokenizers quadratic or recursive: each is bounded by the test's
// timeout, which a quadratic one would exceed many times over.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fakes/test_data.h"
#include "gguf_tokenizers.h"
#include "toy_vocabularies.h"

namespace berth {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::string Repeat(std::string_view unit) {
  std::string text;
  text.reserve(kMiB + unit.size());
  while (text.size() < kMiB) text += unit;
  return text;
}

// Starters, marks of alternating combining class, white space that alternatives read again, beginnings of special
// tokens.
std::vector<std::string> LongTexts() {
  std::vector<std::string> texts;
  for (const char* unit :
       {"a", " ", "\n", "日", "'", " \n", "<", "\u0301", "\u0301\u0327", "👋", "\t!", "The quick brown fox jumps. "}) {
    texts.push_back(Repeat(unit));
  }
  return texts;
}

void ExpectLongTextsComeBack(const Tokenizer& tokenizer, bool normalizes) {
  for (const std::string& text : LongTexts()) {
    SCOPED_TRACE(text.substr(0, 30));
    const std::vector<TokenId> ids = test::Ids(tokenizer, text, /*parse_special=*/true);
    EXPECT_GE(ids.size() * static_cast<std::size_t>(tokenizer.longest_piece_bytes()), text.size());
    EXPECT_TRUE(normalizes || tokenizer.Decode(ids) == text);
  }
}

TEST(LongText, ByteLevelStaysQuick) {
  BERTH_REQUIRE_SHARED(gpt2, "vocab/ggml-vocab-gpt-2.gguf");
  ExpectLongTextsComeBack(test::GgufTokenizer(gpt2), false);
}

TEST(LongText, WholeWordsStayQuick) {
  BERTH_REQUIRE_SHARED(llama3, "vocab/ggml-vocab-llama-bpe.gguf");
  ExpectLongTextsComeBack(test::GgufTokenizer(llama3), false);
}

TEST(LongText, NormalizationStaysQuick) {
  BERTH_REQUIRE_SHARED(qwen2, "vocab/ggml-vocab-qwen2.gguf");
  ExpectLongTextsComeBack(test::GgufTokenizer(qwen2), true);
}

TEST(LongText, SentencePieceStaysQuick) {
  BERTH_REQUIRE_SHARED(llama2, "vocab/ggml-vocab-llama-spm.gguf");
  ExpectLongTextsComeBack(test::GgufTokenizer(llama2), false);
}

TEST(LongText, TheDefaultModelStaysQuick) {
  BERTH_REQUIRE_DEFAULT_MODEL(model);
  ExpectLongTextsComeBack(test::GgufTokenizer(model), false);
}

}  // namespace
}  // namespace berth
