// The merge orders themselves, against the slow definition: search all pairs for the best one, merge it, begin again.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "random_text.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/spm.h"
#include "toy_vocabularies.h"

namespace berth {
namespace {

std::vector<std::string> Spellings(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::string> result;
  for (const TokenId id : test::Ids(tokenizer, text)) result.emplace_back(tokenizer.Spelling(id));
  return result;
}

// Merges the leftmost pair with the lowest cost until `cost` knows none.
template <typename CostFunction>
std::vector<std::string> MergeSlowly(std::vector<std::string> parts, const CostFunction& cost) {
  for (;;) {
    std::optional<double> best;
    std::size_t best_i = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const std::optional<double> pair_cost = cost(parts[i], parts[i + 1]);
      if (pair_cost && (!best || *pair_cost < *best)) {
        best = pair_cost;
        best_i = i;
      }
    }
    if (!best) return parts;
    parts[best_i] += parts[best_i + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best_i) + 1);
  }
}

std::vector<std::string> Letters(std::string_view text) {
  std::vector<std::string> letters;
  for (const char c : text) letters.emplace_back(1, c);
  return letters;
}

std::string RandomLetters(std::mt19937_64* random, int length) {
  std::string text;
  for (int i = 0; i < length; ++i) text += static_cast<char>('a' + test::Pick(random, 3));
  return text;
}

TEST(Merging, ByteLevelMergesTheBestRankedPairFirst) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> known = {"a", "b", "c"};
    std::vector<std::pair<std::string, std::string>> merges;
    std::map<std::pair<std::string, std::string>, double> ranks;
    for (int rank = 0; rank < 25; ++rank) {
      const std::string left = known[static_cast<std::size_t>(test::Pick(&random, static_cast<int>(known.size())))];
      const std::string right = known[static_cast<std::size_t>(test::Pick(&random, static_cast<int>(known.size())))];
      if (!ranks.emplace(std::pair(left, right), rank).second) continue;
      merges.emplace_back(left, right);
      known.push_back(left + right);
    }
    const auto cost = [&](const std::string& left, const std::string& right) -> std::optional<double> {
      const auto it = ranks.find({left, right});
      return it == ranks.end() ? std::nullopt : std::optional(it->second);
    };
    const auto tokenizer = test::MakeTokenizer(test::ToyByteLevel(merges));
    for (int i = 0; i < 30; ++i) {
      const std::string text = RandomLetters(&random, 1 + test::Pick(&random, 40));
      ASSERT_EQ(Spellings(*tokenizer, text), MergeSlowly(Letters(text), cost)) << text;
    }
  }
}

TEST(Merging, SentencePieceMergesTheHighestScoreFirstTheLeftmostOfEquals) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 60; ++round) {
    std::map<std::string, float> scores = {{"a", 0.f}, {"b", 0.f}, {"c", 0.f}};
    for (int i = 0; i < 25; ++i) {
      // Few values, so that there are ties.
      scores.emplace(RandomLetters(&random, 2 + test::Pick(&random, 4)), static_cast<float>(-test::Pick(&random, 5)));
    }
    const auto cost = [&](const std::string& left, const std::string& right) -> std::optional<double> {
      const auto it = scores.find(left + right);
      return it == scores.end() ? std::nullopt : std::optional<double>(-it->second);
    };
    Vocabulary vocabulary = test::ToySentencePiece({scores.begin(), scores.end()});
    vocabulary.add_space_prefix = false;
    const auto tokenizer = test::MakeTokenizer(std::move(vocabulary));
    for (int i = 0; i < 30; ++i) {
      const std::string text = RandomLetters(&random, 1 + test::Pick(&random, 40));
      ASSERT_EQ(Spellings(*tokenizer, text), MergeSlowly(Letters(text), cost)) << text;
    }
  }
}

TEST(Merging, ByteLevelNeverCrossesWords) {
  const auto tokenizer = test::MakeTokenizer(test::ToyByteLevel({{"b", "Ġ"}, {"a", "b"}, {"Ġ", "a"}}));
  EXPECT_EQ(Spellings(*tokenizer, "ab ab"), (std::vector<std::string>{"ab", "Ġ", "ab"}));
}

TEST(Merging, IgnoreMergesTakesAWholeWordThatIsAToken) {
  Vocabulary vocabulary = test::ToyByteLevel({{"a", "b"}});
  const TokenId whole = test::AddToken(&vocabulary, "Ġabc", TokenType::kNormal);  // no merges lead to it
  const auto by_merges = test::MakeTokenizer(vocabulary);
  vocabulary.ignore_merges = true;
  const auto by_words = test::MakeTokenizer(vocabulary);
  EXPECT_EQ(Spellings(*by_merges, " abc"), (std::vector<std::string>{"Ġ", "ab", "c"}));
  EXPECT_EQ(test::Ids(*by_words, " abc"), std::vector<TokenId>{whole});
  EXPECT_EQ(Spellings(*by_words, " abcd"), (std::vector<std::string>{"Ġ", "ab", "c", "d"}));
}

TEST(Merging, AMergeWithAPartThatIsNoTokenIsLeftOut) {
  Vocabulary vocabulary = test::ToyByteLevel({{"a", "b"}});
  vocabulary.merges.insert(vocabulary.merges.begin(), {{"x", "y"}, {"zz", "a"}});
  const auto tokenizer = test::MakeTokenizer(std::move(vocabulary));
  EXPECT_EQ(Spellings(*tokenizer, "xyab"), (std::vector<std::string>{"x", "y", "ab"}));
}

TEST(Merging, TextNeverMergesIntoAControlToken) {
  Vocabulary bytes = test::ToyByteLevel({{"<", "s"}, {"<s", ">"}});
  bytes.types.back() = TokenType::kControl;
  EXPECT_EQ(Spellings(*test::MakeTokenizer(bytes), "<s>"), (std::vector<std::string>{"<", "s", ">"}));

  Vocabulary pieces = test::ToySentencePiece({{"<", 0.f}, {"s", 0.f}, {">", 0.f}, {"<s", 0.f}, {"0x0A>", 0.f}});
  pieces.add_space_prefix = false;
  EXPECT_EQ(Spellings(*test::MakeTokenizer(pieces), "<s>"), (std::vector<std::string>{"<s", ">"}));
}

TEST(Merging, SentencePieceFallsBackToBytes) {
  const auto tokenizer = test::MakeTokenizer(test::ToySentencePiece({{"▁", 0.f}, {"é", 0.f}}));
  EXPECT_EQ(Spellings(*tokenizer, "é日"), (std::vector<std::string>{"▁", "é", "<0xE6>", "<0x97>", "<0xA5>"}));
}

TEST(Merging, SentencePieceSpellsSpacesAndAddsOneInFront) {
  Vocabulary vocabulary = test::ToySentencePiece({{"▁", 0.f}, {"a", 0.f}, {"▁a", 1.f}, {"▁▁", 2.f}});
  EXPECT_EQ(Spellings(*test::MakeTokenizer(vocabulary), "a  a"), (std::vector<std::string>{"▁a", "▁▁", "a"}));
  EXPECT_EQ(Spellings(*test::MakeTokenizer(vocabulary), " a"), (std::vector<std::string>{"▁▁", "a"}));
  EXPECT_TRUE(test::Ids(*test::MakeTokenizer(vocabulary), "").empty());
  vocabulary.add_space_prefix = false;
  EXPECT_EQ(Spellings(*test::MakeTokenizer(vocabulary), "a a"), (std::vector<std::string>{"a", "▁a"}));
}

TEST(Merging, ByteSpellingsAreTwoUpperCaseHexDigits) {
  EXPECT_EQ(ByteOfSpelling("<0x0A>"), 10);
  EXPECT_EQ(ByteOfSpelling("<0xFF>"), 255);
  for (const char* spelling : {"", "<0xFF", "<0xF>", "<0x0a>", "<0xFFF>", "[0xFF]", "<0xG0>"}) {
    EXPECT_EQ(ByteOfSpelling(spelling), -1) << spelling;
  }
}

TEST(Merging, TheByteAlphabetIsGpt2s) {
  EXPECT_EQ(SpellByte('a'), U'a');
  EXPECT_EQ(SpellByte(' '), U'Ġ');
  EXPECT_EQ(SpellByte('\n'), U'Ċ');
  EXPECT_EQ(SpellByte(0), U'Ā');
  EXPECT_EQ(SpellByte(0xAD), U'Ń');
  EXPECT_EQ(SpellByte(0xFF), U'ÿ');
  EXPECT_EQ(UnspellBytes("ĠaĊ"), " a\n");
  EXPECT_EQ(UnspellBytes("日 "), "日 ");
}

}  // namespace
}  // namespace berth
