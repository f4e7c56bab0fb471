#include "tokenizer/incremental_decoder.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "random_text.h"
#include "toy_vocabularies.h"

namespace berth {
namespace {

// A byte-level vocabulary where id = byte, and a control token 256.
std::unique_ptr<Tokenizer> Bytes() {
  Vocabulary vocabulary = test::ToyByteLevel({});
  test::AddToken(&vocabulary, "<|end|>", TokenType::kControl);
  return test::MakeTokenizer(std::move(vocabulary));
}

std::string DecodeBytes(const Tokenizer& tokenizer, std::string_view bytes) {
  std::vector<TokenId> ids;
  for (const char c : bytes) ids.push_back(static_cast<unsigned char>(c));
  return tokenizer.Decode(ids);
}

TEST(IncrementalDecoder, NoCharacterIsShownByHalves) {
  const auto tokenizer = Bytes();
  IncrementalDecoder decoder(tokenizer.get(), true);
  EXPECT_EQ(decoder.Append(0xF0), "");
  EXPECT_EQ(decoder.Append(0x9F), "");
  EXPECT_EQ(decoder.Append(0x91), "");
  EXPECT_EQ(decoder.Append(0x8B), "👋");
  EXPECT_EQ(decoder.Flush(), "");
}

TEST(IncrementalDecoder, AnUnfinishedCharacterIsNothingUntilTheEnd) {
  const auto tokenizer = Bytes();
  IncrementalDecoder decoder(tokenizer.get(), true);
  EXPECT_EQ(decoder.Append(0xF0), "");
  EXPECT_EQ(decoder.Append(0x9F), "");
  EXPECT_EQ(decoder.Flush(), "\uFFFD");
  EXPECT_EQ(decoder.Flush(), "");
}

// Unicode 15, section 3.9, table 3-8 and the examples around it.
TEST(IncrementalDecoder, EachMaximalInvalidPartIsOneReplacement) {
  const auto tokenizer = Bytes();
  EXPECT_EQ(DecodeBytes(*tokenizer, "\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
  EXPECT_EQ(DecodeBytes(*tokenizer, "\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(DecodeBytes(*tokenizer, "\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(DecodeBytes(*tokenizer, "\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "\uFFFD\uFFFD\uFFFD\uFFFD\x41");
}

TEST(IncrementalDecoder, GoesOnAfterInvalidBytes) {
  const auto tokenizer = Bytes();
  IncrementalDecoder decoder(tokenizer.get(), true);
  EXPECT_EQ(decoder.Append(0xE6), "");
  EXPECT_EQ(decoder.Append('a'), "\uFFFDa");
  EXPECT_EQ(decoder.Append(0x80), "\uFFFD");
  EXPECT_EQ(decoder.Append('b'), "b");
}

TEST(IncrementalDecoder, EveryStepIsValidUtf8) {
  const auto tokenizer = Bytes();
  std::mt19937_64 random(11);
  for (int round = 0; round < 2000; ++round) {
    IncrementalDecoder decoder(tokenizer.get(), true);
    std::string text;
    std::vector<TokenId> ids;
    for (int i = 0; i < 24; ++i) {
      ids.push_back(test::Pick(&random, 3) == 0 ? 'a' : 0x80 + test::Pick(&random, 0x80));
      const std::string step = decoder.Append(ids.back());
      ASSERT_EQ(FindInvalidUtf8(step), std::nullopt);
      text += step;
    }
    ASSERT_EQ(text + decoder.Flush(), tokenizer->Decode(ids));
  }
}

TEST(IncrementalDecoder, IdsThatAreNoTokensAddNothing) {
  const auto tokenizer = Bytes();
  IncrementalDecoder decoder(tokenizer.get(), true);
  EXPECT_EQ(decoder.Append(0xE6), "");
  EXPECT_EQ(decoder.Append(0x97), "");
  for (const TokenId id : {TokenId{256}, TokenId{257}, TokenId{1 << 30}, kNoToken}) EXPECT_EQ(decoder.Append(id), "");
  EXPECT_EQ(decoder.Append(0xA5), "日");
}

TEST(IncrementalDecoder, OnlyTheSpaceThatEncodingAddedIsStripped) {
  const auto tokenizer =
      test::MakeTokenizer(test::ToySentencePiece({{"▁", 0.f}, {"▁a", 0.f}, {"▁▁", 0.f}, {"a", 0.f}}));
  const TokenId space = 259;
  const TokenId space_a = 260;
  const TokenId two_spaces = 261;
  const TokenId bos = 1;
  const auto decode = [&](std::vector<TokenId> ids, bool at_text_start) {
    IncrementalDecoder decoder(tokenizer.get(), at_text_start);
    std::string text;
    for (const TokenId id : ids) text += decoder.Append(id);
    return text + decoder.Flush();
  };
  EXPECT_EQ(decode({space_a, space_a}, true), "a a");
  EXPECT_EQ(decode({bos, space_a, space_a}, true), "a a");
  EXPECT_EQ(decode({space, space_a}, true), " a");
  EXPECT_EQ(decode({two_spaces, space_a}, true), "  a");
  EXPECT_EQ(decode({space_a, space_a}, false), " a a");
}

TEST(IncrementalDecoder, VocabulariesWithoutASpacePrefixLoseNoSpace) {
  const auto tokenizer = Bytes();
  EXPECT_EQ(DecodeBytes(*tokenizer, "  a"), "  a");
}

}  // namespace
}  // namespace berth
