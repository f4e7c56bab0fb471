#include "tokenizer/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "pcre2_matcher.h"
#include "random_text.h"

namespace berth {
namespace {

using ::testing::ElementsAre;

constexpr char kGpt2Pattern[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr char kLlama3Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kQwen2Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kDigitsPattern[] = R"(\p{N}|\P{N}+)";

std::vector<std::string> Words(PreTokenizerKind kind, std::string_view text) {
  PreTokenizer words(kind, text);
  std::vector<std::string> result;
  for (std::string_view word = words.Next(); !word.empty(); word = words.Next()) result.emplace_back(word);
  return result;
}

std::vector<std::string> SmolLmOracle(std::string_view text) {
  static const test::Pcre2Matcher digits(kDigitsPattern);
  static const test::Pcre2Matcher gpt2(kGpt2Pattern);
  std::vector<std::string> result;
  for (const std::string& piece : digits.Words(text)) {
    for (std::string& word : gpt2.Words(piece)) result.push_back(std::move(word));
  }
  return result;
}

bool Pcre2Agrees(char32_t c) { return test::Pcre2ClassOf(c) == ClassOf(c); }

void ExpectAgreement(const std::string& text) {
  static const test::Pcre2Matcher gpt2(kGpt2Pattern);
  static const test::Pcre2Matcher llama3(kLlama3Pattern);
  static const test::Pcre2Matcher qwen2(kQwen2Pattern);
  ASSERT_EQ(Words(PreTokenizerKind::kGpt2, text), gpt2.Words(text)) << "gpt-2: '" << text << "'";
  ASSERT_EQ(Words(PreTokenizerKind::kLlama3, text), llama3.Words(text)) << "llama-3: '" << text << "'";
  ASSERT_EQ(Words(PreTokenizerKind::kQwen2, text), qwen2.Words(text)) << "qwen2: '" << text << "'";
  ASSERT_EQ(Words(PreTokenizerKind::kSmolLm, text), SmolLmOracle(text)) << "smollm: '" << text << "'";
}

TEST(PreTokenizer, AgreesWithTheRegularExpressionsOnRandomText) {
  std::mt19937_64 random(15);
  for (int i = 0; i < 30000 && !testing::Test::HasFatalFailure(); ++i) {
    ExpectAgreement(test::RandomText(&random, 24, Pcre2Agrees));
  }
}

// Every text of up to six of the characters that the expressions tell apart.
TEST(PreTokenizer, AgreesWithTheRegularExpressionsOnEveryShortText) {
  const std::string alphabet = " \n\ta1!'s";
  for (int length = 0; length <= 5; ++length) {
    std::vector<std::size_t> digits(static_cast<std::size_t>(length), 0);
    for (bool more = true; more && !testing::Test::HasFatalFailure();) {
      std::string text;
      for (const std::size_t digit : digits) text += alphabet[digit];
      ExpectAgreement(text);
      std::size_t i = 0;
      while (i < digits.size() && ++digits[i] == alphabet.size()) digits[i++] = 0;
      more = i < digits.size();
    }
  }
}

TEST(PreTokenizer, EveryFamilyCutsNumbersItsOwnWay) {
  EXPECT_THAT(Words(PreTokenizerKind::kGpt2, "a 12345"), ElementsAre("a", " 12345"));
  EXPECT_THAT(Words(PreTokenizerKind::kLlama3, "a 12345"), ElementsAre("a", " ", "123", "45"));
  EXPECT_THAT(Words(PreTokenizerKind::kQwen2, "a 123"), ElementsAre("a", " ", "1", "2", "3"));
  EXPECT_THAT(Words(PreTokenizerKind::kSmolLm, "a  12b"), ElementsAre("a", "  ", "1", "2", "b"));
}

TEST(PreTokenizer, LongSIsAnSOnlyWhereCaseIsIgnored) {
  EXPECT_THAT(Words(PreTokenizerKind::kLlama3, "a'\u017Fb"), ElementsAre("a", "'\u017F", "b"));
  EXPECT_THAT(Words(PreTokenizerKind::kQwen2, "a'\u017Fb"), ElementsAre("a", "'\u017F", "b"));
  EXPECT_THAT(Words(PreTokenizerKind::kGpt2, "a'\u017Fb"), ElementsAre("a", "'", "\u017Fb"));
  EXPECT_THAT(Words(PreTokenizerKind::kGpt2, "I'LL"), ElementsAre("I", "'", "LL"));
  EXPECT_THAT(Words(PreTokenizerKind::kLlama3, "I'LL"), ElementsAre("I", "'LL"));
}

// Where PCRE2 10.42 itself is not the reference: newer letters, and a character that is no white space any more.
TEST(PreTokenizer, CharactersFollowUnicode15) {
  EXPECT_THAT(Words(PreTokenizerKind::kGpt2, "a\U00031350 \U0001E030"), ElementsAre("a\U00031350", " \U0001E030"));
  EXPECT_THAT(Words(PreTokenizerKind::kLlama3, "a\u180E\u180E b"), ElementsAre("a", "\u180E\u180E", " b"));
}

}  // namespace
}  // namespace berth
