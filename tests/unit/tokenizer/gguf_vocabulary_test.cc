// What a GGUF file may say of its tokenizer, and what it is refused for.
#include "tokenizer/gguf_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "fakes/gguf_builder.h"
#include "toy_vocabularies.h"

namespace berth {
namespace {

using test::GgufBuilder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::int32_t> TypeNumbers(const Vocabulary& vocabulary) {
  std::vector<std::int32_t> numbers;
  for (const TokenType type : vocabulary.types) numbers.push_back(static_cast<std::int32_t>(type));
  return numbers;
}

GgufBuilder ByteLevelFile(const Vocabulary& vocabulary = test::ToyByteLevel({{"a", "b"}})) {
  std::vector<std::string> merges;
  for (const auto& [left, right] : vocabulary.merges) merges.push_back(left + " " + right);
  GgufBuilder builder;
  builder.AddString("tokenizer.ggml.model", "gpt2")
      .AddString("tokenizer.ggml.pre", "smollm")
      .AddStringArray("tokenizer.ggml.tokens", vocabulary.tokens)
      .AddI32Array("tokenizer.ggml.token_type", TypeNumbers(vocabulary))
      .AddStringArray("tokenizer.ggml.merges", merges);
  return builder;
}

GgufBuilder SentencePieceFile(const Vocabulary& vocabulary = test::ToySentencePiece({{"▁", 0.f}, {"▁▁", -1.f}})) {
  GgufBuilder builder;
  builder.AddString("general.architecture", "llama")
      .AddString("tokenizer.ggml.model", "llama")
      .AddStringArray("tokenizer.ggml.tokens", vocabulary.tokens)
      .AddI32Array("tokenizer.ggml.token_type", TypeNumbers(vocabulary))
      .AddF32Array("tokenizer.ggml.scores", vocabulary.scores)
      .AddU32("tokenizer.ggml.bos_token_id", 1)
      .AddU32("tokenizer.ggml.eos_token_id", 2);
  return builder;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const GgufBuilder& builder) {
  const test::ScratchFile scratch(builder.Bytes());
  const auto file = GgufFile::Open(scratch.path());
  if (!file.ok()) return file.status();
  return Tokenizer::FromGguf(**file);  // the file goes, the tokenizer stays
}

std::string Refusal(const GgufBuilder& builder) {
  const auto tokenizer = Load(builder);
  return tokenizer.ok() ? std::string("accepted") : std::string(tokenizer.status().message());
}

TEST(GgufVocabulary, ByteLevelIsRead) {
  const auto tokenizer = Load(ByteLevelFile().AddU32("tokenizer.ggml.eos_token_id", 5));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(test::Ids(**tokenizer, "ab1"), ElementsAre(256, '1'));
  EXPECT_EQ((*tokenizer)->bos(), kNoToken);
  EXPECT_THAT((*tokenizer)->eos(), ElementsAre(5));
  EXPECT_FALSE((*tokenizer)->strips_leading_space());
}

TEST(GgufVocabulary, SentencePieceIsRead) {
  const auto tokenizer = Load(SentencePieceFile());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*(*tokenizer)->Encode(" ", {}), ElementsAre(1, 260));
  EXPECT_TRUE((*tokenizer)->strips_leading_space());
  const auto no_prefix = Load(SentencePieceFile().AddBool("tokenizer.ggml.add_space_prefix", false));
  ASSERT_TRUE(no_prefix.ok()) << no_prefix.status();
  EXPECT_THAT(*(*no_prefix)->Encode(" ", {}), ElementsAre(1, 259));
}

TEST(GgufVocabulary, UnknownModelsAndPreTokenizersAreRefusedByName) {
  EXPECT_THAT(Refusal(ByteLevelFile().Remove("tokenizer.ggml.model").AddString("tokenizer.ggml.model", "t5")),
              AllOf(HasSubstr("tokenizer.ggml.model"), HasSubstr("'t5'"), HasSubstr("gpt2"), HasSubstr("llama")));
  EXPECT_THAT(Refusal(ByteLevelFile().Remove("tokenizer.ggml.model")), HasSubstr("tokenizer.ggml.model"));
  EXPECT_THAT(Refusal(ByteLevelFile().Remove("tokenizer.ggml.pre").AddString("tokenizer.ggml.pre", "default")),
              AllOf(HasSubstr("'default'"), HasSubstr("gpt-2, llama-bpe, llama3, llama-v3, qwen2, smollm")));
  EXPECT_THAT(Refusal(ByteLevelFile().Remove("tokenizer.ggml.pre")),
              AllOf(HasSubstr("tokenizer.ggml.pre"), HasSubstr("missing"), HasSubstr("smollm")));
  EXPECT_THAT(Refusal(SentencePieceFile().AddString("tokenizer.ggml.pre", "gpt-4o")), HasSubstr("'gpt-4o'"));
  EXPECT_EQ(Refusal(SentencePieceFile().AddString("tokenizer.ggml.pre", "default")), "accepted");
}

TEST(GgufVocabulary, EveryServedPreTokenizerLoads) {
  for (const char* pre : {"gpt-2", "llama-bpe", "llama3", "llama-v3", "qwen2", "smollm"}) {
    const auto tokenizer = Load(ByteLevelFile().Remove("tokenizer.ggml.pre").AddString("tokenizer.ggml.pre", pre));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ((*tokenizer)->description(), std::string("gpt2/") + pre);
  }
}

TEST(GgufVocabulary, ArraysOfOtherTypesAreRefused) {
  const std::size_t count = test::ToySentencePiece({{"▁", 0.f}, {"▁▁", -1.f}}).tokens.size();
  EXPECT_THAT(Refusal(SentencePieceFile()
                          .Remove("tokenizer.ggml.scores")
                          .AddI8Array("tokenizer.ggml.scores", std::vector<std::int8_t>(count))),
              HasSubstr("tokenizer.ggml.scores"));
  EXPECT_THAT(Refusal(SentencePieceFile()
                          .Remove("tokenizer.ggml.token_type")
                          .AddI8Array("tokenizer.ggml.token_type", std::vector<std::int8_t>(count, 1))),
              HasSubstr("tokenizer.ggml.token_type"));
  EXPECT_THAT(Refusal(ByteLevelFile().Remove("tokenizer.ggml.tokens").AddString("tokenizer.ggml.tokens", "a")),
              HasSubstr("tokenizer.ggml.tokens"));
  EXPECT_THAT(Refusal(ByteLevelFile().Remove("tokenizer.ggml.merges").AddU32("tokenizer.ggml.merges", 3)),
              HasSubstr("tokenizer.ggml.merges"));
  EXPECT_THAT(Refusal(SentencePieceFile().AddU32("tokenizer.ggml.add_bos_token", 1)),
              HasSubstr("tokenizer.ggml.add_bos_token"));
}

TEST(GgufVocabulary, MissingAndUnequalArraysAreRefused) {
  for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"}) {
    EXPECT_THAT(Refusal(ByteLevelFile().Remove(key)), HasSubstr(key));
  }
  EXPECT_THAT(Refusal(SentencePieceFile().Remove("tokenizer.ggml.scores")), HasSubstr("tokenizer.ggml.scores"));
  EXPECT_THAT(
      Refusal(SentencePieceFile().Remove("tokenizer.ggml.scores").AddF32Array("tokenizer.ggml.scores", {1.f, 2.f})),
      HasSubstr("2 scores for 261 tokens"));
  EXPECT_THAT(
      Refusal(ByteLevelFile().Remove("tokenizer.ggml.token_type").AddI32Array("tokenizer.ggml.token_type", {1})),
      HasSubstr("1 types for 257 tokens"));
  EXPECT_THAT(Refusal(ByteLevelFile().Remove("tokenizer.ggml.tokens").AddStringArray("tokenizer.ggml.tokens", {})),
              HasSubstr("0 tokens"));
}

TEST(GgufVocabulary, ValuesOutOfRangeAreRefused) {
  Vocabulary vocabulary = test::ToySentencePiece({{"▁", std::numeric_limits<float>::quiet_NaN()}});
  EXPECT_THAT(Refusal(SentencePieceFile(vocabulary)), HasSubstr("score of token 259 is not finite"));
  Vocabulary typed = test::ToyByteLevel({});
  typed.types[9] = static_cast<TokenType>(7);
  EXPECT_THAT(Refusal(ByteLevelFile(typed)), HasSubstr("token 9 has type 7"));
  Vocabulary huge = test::ToyByteLevel({});
  test::AddToken(&huge, std::string(kMaxTokenBytes + 1, 'x'), TokenType::kNormal);
  EXPECT_THAT(Refusal(ByteLevelFile(huge)), HasSubstr("token 256 has 1025 bytes"));
  EXPECT_THAT(Refusal(ByteLevelFile().AddU32("tokenizer.ggml.eos_token_id", 257)),
              AllOf(HasSubstr("tokenizer.ggml.eos_token_id"), HasSubstr("257")));
  EXPECT_THAT(Refusal(ByteLevelFile().AddI32("tokenizer.ggml.bos_token_id", -1)),
              HasSubstr("tokenizer.ggml.bos_token_id"));
  EXPECT_THAT(Refusal(ByteLevelFile().AddString("tokenizer.ggml.eot_token_id", "x")),
              HasSubstr("tokenizer.ggml.eot_token_id"));
}

TEST(GgufVocabulary, MergesMustBeTwoParts) {
  for (const char* merge : {"", "ab", " a", "a ", "a b c", "a  b"}) {
    GgufBuilder builder = ByteLevelFile();
    builder.Remove("tokenizer.ggml.merges").AddStringArray("tokenizer.ggml.merges", {"a b", merge});
    EXPECT_THAT(Refusal(builder), HasSubstr("merge 1")) << "'" << merge << "'";
  }
}

TEST(GgufVocabulary, RefusalsNameTheFile) {
  const test::ScratchFile scratch(ByteLevelFile().Remove("tokenizer.ggml.pre").Bytes());
  const auto file = GgufFile::Open(scratch.path());
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(std::string(Tokenizer::FromGguf(**file).status().message()), HasSubstr(scratch.path()));
}

TEST(GgufVocabulary, TheNoneIdMeansNone) {
  const auto tokenizer = Load(ByteLevelFile()
                                  .AddU32("tokenizer.ggml.bos_token_id", 4294967295)
                                  .AddU32("tokenizer.ggml.eos_token_id", 4294967295));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->bos(), kNoToken);
  EXPECT_TRUE((*tokenizer)->eos().empty());
}

TEST(GgufVocabulary, TheBeginTokenFollowsTheFamilyWhereTheFileIsSilent) {
  const auto adds_bos = [](GgufBuilder builder) {
    const auto tokenizer = Load(builder);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return tokenizer.ok() && (*tokenizer)->adds_bos();
  };
  EXPECT_TRUE(adds_bos(SentencePieceFile()));
  EXPECT_FALSE(adds_bos(SentencePieceFile().AddBool("tokenizer.ggml.add_bos_token", false)));
  EXPECT_FALSE(adds_bos(ByteLevelFile().AddU32("tokenizer.ggml.bos_token_id", 1)));
  EXPECT_TRUE(
      adds_bos(ByteLevelFile().AddU32("tokenizer.ggml.bos_token_id", 1).AddBool("tokenizer.ggml.add_bos_token", true)));
  EXPECT_TRUE(adds_bos(ByteLevelFile()
                           .AddU32("tokenizer.ggml.bos_token_id", 1)
                           .Remove("tokenizer.ggml.pre")
                           .AddString("tokenizer.ggml.pre", "llama3")));
  EXPECT_THAT(Refusal(ByteLevelFile().AddBool("tokenizer.ggml.add_bos_token", true)),
              HasSubstr("tokenizer.ggml.add_bos_token"));
}

TEST(GgufVocabulary, EndTokensAreNamedByIdOrByAControlTokensSpelling) {
  Vocabulary vocabulary = test::ToyByteLevel({});
  const TokenId turn = test::AddToken(&vocabulary, "<|im_end|>", TokenType::kControl);
  test::AddToken(&vocabulary, "<|im_start|>", TokenType::kControl);
  test::AddToken(&vocabulary, "<|endoftext|>", TokenType::kNormal);  // text that looks like an end
  const auto tokenizer = Load(ByteLevelFile(vocabulary)
                                  .AddU32("tokenizer.ggml.eos_token_id", 3)
                                  .AddU32("tokenizer.ggml.eot_token_id", 2)
                                  .AddU32("tokenizer.ggml.eom_token_id", 3));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT((*tokenizer)->eos(), ElementsAre(2, 3, turn));
}

TEST(GgufVocabulary, OnlyPhi3FilesStripWhiteSpaceAfterSpecialTokens) {
  Vocabulary vocabulary = test::ToySentencePiece({{"▁", 0.f}, {"h", 0.f}});
  const TokenId user = test::AddToken(&vocabulary, "<|user|>", TokenType::kControl);
  const auto llama = Load(SentencePieceFile(vocabulary));
  const auto phi3 =
      Load(SentencePieceFile(vocabulary).Remove("general.architecture").AddString("general.architecture", "phi3"));
  ASSERT_TRUE(llama.ok() && phi3.ok());
  EXPECT_THAT(test::Ids(**llama, "<|user|> h", true), ElementsAre(user, 259, 259, 260));
  EXPECT_THAT(test::Ids(**phi3, "<|user|> h", true), ElementsAre(user, 259, 260));
}

TEST(GgufVocabulary, WhatCannotEncodeIsRefusedWithTheKey) {
  Vocabulary vocabulary = test::ToySentencePiece({});
  vocabulary.types[100] = TokenType::kNormal;
  EXPECT_THAT(Refusal(SentencePieceFile(vocabulary)), AllOf(HasSubstr("tokenizer.ggml.tokens"), HasSubstr("byte 97")));
}

}  // namespace
}  // namespace berth
