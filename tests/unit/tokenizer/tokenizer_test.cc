// What every tokenizer promises, on small vocabularies.
#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "random_text.h"
#include "toy_vocabularies.h"

namespace berth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Tokenizer, InvalidUtf8IsRefusedWithItsOffset) {
  const auto tokenizer = test::MakeTokenizer(test::ToyByteLevel({}));
  const auto ids = tokenizer->Encode("abc\xFF", {});
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ids.status().message()), HasSubstr("byte 3"));
}

TEST(Tokenizer, SpecialTokensAreTextUnlessAskedFor) {
  Vocabulary vocabulary = test::ToyByteLevel({});
  const TokenId end = test::AddToken(&vocabulary, "<e>", TokenType::kControl);
  const TokenId unknown = test::AddToken(&vocabulary, "<u>", TokenType::kUnknown);
  const TokenId think = test::AddToken(&vocabulary, "<t>", TokenType::kUserDefined);
  const auto tokenizer = test::MakeTokenizer(std::move(vocabulary));
  EXPECT_THAT(test::Ids(*tokenizer, "a<e><u>", true), ElementsAre('a', end, unknown));
  EXPECT_THAT(test::Ids(*tokenizer, "<e>"), ElementsAre('<', 'e', '>'));
  EXPECT_THAT(test::Ids(*tokenizer, "<u>"), ElementsAre('<', 'u', '>'));
  EXPECT_THAT(test::Ids(*tokenizer, "a<t>b"), ElementsAre('a', think, 'b'));
}

TEST(Tokenizer, ControlTokensHaveASpellingAndNoText) {
  Vocabulary vocabulary = test::ToyByteLevel({});
  const TokenId end = test::AddToken(&vocabulary, "<e>", TokenType::kControl);
  const TokenId think = test::AddToken(&vocabulary, "é ", TokenType::kUserDefined);
  const auto tokenizer = test::MakeTokenizer(std::move(vocabulary));
  EXPECT_EQ(tokenizer->Piece(end), "");
  EXPECT_EQ(tokenizer->Spelling(end), "<e>");
  EXPECT_EQ(tokenizer->Piece(think), "é ");
  EXPECT_EQ(tokenizer->Piece(' '), " ");
  EXPECT_EQ(tokenizer->Spelling(' '), "Ġ");
}

TEST(Tokenizer, TheBeginTokenIsAddedOnceAndOnlyWhereTheModelWantsIt) {
  Vocabulary vocabulary = test::ToyByteLevel({});
  const TokenId bos = test::AddToken(&vocabulary, "<s>", TokenType::kControl);
  vocabulary.bos = bos;
  const auto plain = test::MakeTokenizer(vocabulary);
  EXPECT_FALSE(plain->adds_bos());
  EXPECT_THAT(*plain->Encode("a", {}), ElementsAre('a'));

  vocabulary.add_bos = true;
  const auto tokenizer = test::MakeTokenizer(vocabulary);
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_THAT(*tokenizer->Encode("a", {}), ElementsAre(bos, 'a'));
  EXPECT_THAT(*tokenizer->Encode("", {}), ElementsAre(bos));
  EXPECT_THAT(*tokenizer->Encode("a", {.add_bos = false}), ElementsAre('a'));
  EXPECT_THAT(*tokenizer->Encode("<s>a", {.parse_special = true}), ElementsAre(bos, 'a'));
  EXPECT_THAT(*tokenizer->Encode("<s><s>a", {.parse_special = true}), ElementsAre(bos, bos, 'a'));

  vocabulary.bos = kNoToken;
  EXPECT_THAT(*test::MakeTokenizer(vocabulary)->Encode("a", {}), ElementsAre('a'));
}

TEST(Tokenizer, EndTokensAreSortedAndNamedOnce) {
  Vocabulary vocabulary = test::ToyByteLevel({});
  vocabulary.eos = {9, 3, 9, 7};
  EXPECT_THAT(test::MakeTokenizer(vocabulary)->eos(), ElementsAre(3, 7, 9));
}

TEST(Tokenizer, EverySegmentBetweenSpecialTokensGetsASpacePrefix) {
  const Vocabulary vocabulary = test::ToySentencePiece({{"▁", 0.f}, {"h", 0.f}, {"▁h", 1.f}});
  const auto tokenizer = test::MakeTokenizer(vocabulary);
  EXPECT_THAT(test::Ids(*tokenizer, "<s>h</s> h", true), ElementsAre(1, 261, 2, 259, 261));
  EXPECT_THAT(test::Ids(*tokenizer, "<s></s>", true), ElementsAre(1, 2));
}

TEST(Tokenizer, SpecialTokensOfPhi3SwallowTheWhiteSpaceAfterThem) {
  Vocabulary vocabulary = test::ToySentencePiece({{"▁", 0.f}, {"h", 0.f}, {"▁h", 1.f}});
  const TokenId user = test::AddToken(&vocabulary, "<|user|>", TokenType::kControl);
  vocabulary.specials_strip_right = true;
  const auto tokenizer = test::MakeTokenizer(vocabulary);
  EXPECT_THAT(test::Ids(*tokenizer, "<|user|> \n h", true), ElementsAre(user, 261));
  EXPECT_THAT(test::Ids(*tokenizer, "<|user|>\n", true), ElementsAre(user));
  EXPECT_THAT(test::Ids(*tokenizer, "<s> h", true), ElementsAre(1, 259, 261));
}

TEST(Tokenizer, NfcComesFirstWhereTheModelWantsIt) {
  Vocabulary vocabulary = test::ToyByteLevel({{"Ã", "©"}});
  const auto as_is = test::MakeTokenizer(vocabulary);
  vocabulary.normalize_nfc = true;
  const auto normalized = test::MakeTokenizer(vocabulary);
  EXPECT_THAT(test::Ids(*as_is, "e\u0301"), ElementsAre('e', 0xCC, 0x81));
  EXPECT_THAT(test::Ids(*normalized, "e\u0301"), ElementsAre(256));
}

TEST(Tokenizer, BytesWithoutATokenAddNone) {
  Vocabulary vocabulary = test::ToyByteLevel({{"a", "b"}});
  vocabulary.tokens[4] = "not the byte 4";
  const auto tokenizer = test::MakeTokenizer(vocabulary);
  EXPECT_THAT(test::Ids(*tokenizer, "a\x04"), ElementsAre('a'));
  EXPECT_TRUE(test::Ids(*tokenizer, "\x04").empty());
}

TEST(Tokenizer, TheLongestPieceBoundsTheTokenCountFromBelow) {
  Vocabulary vocabulary = test::ToyByteLevel({{"a", "a"}, {"aa", "aa"}});
  EXPECT_EQ(test::MakeTokenizer(vocabulary)->longest_piece_bytes(), 4);
  test::AddToken(&vocabulary, "<|special|>", TokenType::kControl);  // 11 bytes of text, 0 of piece
  EXPECT_EQ(test::MakeTokenizer(vocabulary)->longest_piece_bytes(), 11);
  vocabulary.normalize_nfc = true;
  EXPECT_EQ(test::MakeTokenizer(vocabulary)->longest_piece_bytes(), 44);
}

TEST(Tokenizer, VocabulariesThatCannotEncodeAreRefused) {
  const auto message = [](Vocabulary vocabulary) {
    const auto tokenizer = CreateTokenizer(std::move(vocabulary));
    return tokenizer.ok() ? std::string("accepted") : std::string(tokenizer.status().message());
  };
  EXPECT_THAT(message(Vocabulary()), HasSubstr("no tokens"));
  Vocabulary no_letter = test::ToyByteLevel({});
  no_letter.tokens['a'] = "zzz";
  EXPECT_THAT(message(no_letter), HasSubstr("no token for byte 97"));
  Vocabulary no_byte = test::ToySentencePiece({});
  no_byte.types[3 + 200] = TokenType::kUnused;
  EXPECT_THAT(message(no_byte), HasSubstr("no token for byte 200"));
  Vocabulary bad_byte = test::ToySentencePiece({{"<0xZZ>", 0.f}});
  bad_byte.types.back() = TokenType::kByte;
  EXPECT_THAT(message(bad_byte), HasSubstr("token 259 ('<0xZZ>')"));
  Vocabulary wrong_byte = test::ToyByteLevel({});
  wrong_byte.types[7] = TokenType::kByte;
  EXPECT_THAT(message(wrong_byte), HasSubstr("only SentencePiece"));
  Vocabulary not_utf8 = test::ToyByteLevel({});
  test::AddToken(&not_utf8, "\xFF", TokenType::kNormal);
  EXPECT_THAT(message(not_utf8), HasSubstr("token 256 is not valid UTF-8"));
}

TEST(Tokenizer, ThreadsMayShareOne) {
  const auto tokenizer = test::MakeTokenizer(test::ToyByteLevel({{"a", "b"}, {"Ġ", "ab"}, {"c", "c"}}));
  std::vector<std::string> texts;
  std::vector<std::vector<TokenId>> expected;
  std::mt19937_64 random(12);
  for (int i = 0; i < 200; ++i) {
    texts.push_back(test::RandomText(&random, 60, [](char32_t) { return true; }));
    expected.push_back(test::Ids(*tokenizer, texts.back()));
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < texts.size(); ++i) {
        EXPECT_EQ(test::Ids(*tokenizer, texts[i]), expected[i]);
        EXPECT_EQ(tokenizer->Decode(expected[i]), texts[i]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TokenizerDeathTest, AnIdThatIsNoTokenHasNoPiece) {
  const auto tokenizer = test::MakeTokenizer(test::ToyByteLevel({}));
  EXPECT_DEATH(tokenizer->Piece(256), "check failed");
  EXPECT_DEATH(tokenizer->Spelling(-1), "check failed");
}

}  // namespace
}  // namespace berth
