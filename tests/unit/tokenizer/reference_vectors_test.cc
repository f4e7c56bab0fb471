// Real vocabularies against ids that the reference tokenizers gave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/utf8.h"
#include "fakes/test_data.h"
#include "gguf_tokenizers.h"
#include "random_text.h"
#include "tokenizer/incremental_decoder.h"
#include "toy_vocabularies.h"

namespace berth {
namespace {

using test::GgufTokenizer;
using test::Ids;
using ::testing::ElementsAre;

std::string VocabFile(const std::string& family) { return "vocab/ggml-vocab-" + family + ".gguf"; }

std::vector<std::string> SplitAt(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find(separator, begin)) != std::string::npos; begin = end + separator.size()) {
    parts.push_back(text.substr(begin, end - begin));
  }
  parts.push_back(text.substr(begin));
  return parts;
}

class VocabularyCases : public testing::TestWithParam<const char*> {};

TEST_P(VocabularyCases, EveryCaseGivesTheReferenceIds) {
  BERTH_REQUIRE_SHARED(path, VocabFile(GetParam()));
  std::vector<std::string> texts = SplitAt(test::ReadFile(path + ".inp"), "\n__ggml_vocab_test__\n");
  texts.pop_back();  // the last case too is followed by the separator
  const std::vector<std::string> lines = SplitAt(test::ReadFile(path + ".out"), "\n");
  ASSERT_EQ(texts.size(), 46u);
  ASSERT_GE(lines.size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::istringstream line(lines[i]);
    const std::vector<TokenId> expected{std::istream_iterator<TokenId>(line), {}};
    const std::vector<TokenId> ids = Ids(GgufTokenizer(path), texts[i]);
    EXPECT_EQ(ids, expected) << "case " << i << ": '" << texts[i] << "'";
    EXPECT_EQ(GgufTokenizer(path).Decode(ids), texts[i]) << "case " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, VocabularyCases,
                         testing::Values("gpt-2", "llama-bpe", "qwen2", "llama-spm", "phi-3"), [](const auto& family) {
                           std::string name = family.param;
                           std::erase(name, '-');
                           return name;
                         });

// Lines of {"text", "ids", "parse_special"}. Returns how many were compared.
int ExpectVectors(const Tokenizer& tokenizer, const std::string& path, bool with_special) {
  std::istringstream lines(test::ReadFile(path));
  int compared = 0;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json vector = nlohmann::json::parse(line);
    const bool parse_special = vector.value("parse_special", false);
    if (parse_special && !with_special) continue;
    const auto text = vector["text"].get<std::string>();
    EXPECT_EQ(Ids(tokenizer, text, parse_special), vector["ids"].get<std::vector<TokenId>>())
        << path << " line " << compared + 1 << ": '" << text << "'";
    ++compared;
  }
  return compared;
}

TEST(ReferenceVectors, DefaultModelGivesTheReferenceIds) {
  BERTH_REQUIRE_DEFAULT_MODEL(model);
  EXPECT_EQ(ExpectVectors(GgufTokenizer(model), test::DataFile("smollm2-tokens.jsonl"), true), 480);
}

// The texts that the default model's oracle gives for its ids, and the ids of its prompts.
TEST(ReferenceVectors, DefaultModelDecodesWhatTheOracleGenerated) {
  BERTH_REQUIRE_DEFAULT_MODEL(model);
  const Tokenizer& tokenizer = GgufTokenizer(model);
  const nlohmann::json oracle = nlohmann::json::parse(test::ReadFile(test::DataFile("smollm2-oracle.json")));
  for (const nlohmann::json& run : oracle["cases"]) {
    const auto prompt = run["prompt"].get<std::string>();
    EXPECT_EQ(Ids(tokenizer, prompt, run["parse_special"].get<bool>()), run["prompt_ids"].get<std::vector<TokenId>>());
    EXPECT_EQ(tokenizer.Decode(run["greedy_ids"].get<std::vector<TokenId>>()), run["greedy_text"].get<std::string>());
  }
}

TEST(ReferenceVectors, Gpt2GivesTheReferenceIds) {
  BERTH_REQUIRE_SHARED(model, VocabFile("gpt-2"));
  BERTH_REQUIRE_SHARED(vectors, "tokenizers/vectors/gpt2.jsonl");
  EXPECT_EQ(ExpectVectors(GgufTokenizer(model), vectors, true), 480);
}

TEST(ReferenceVectors, Llama3GivesTheReferenceIds) {
  BERTH_REQUIRE_SHARED(model, VocabFile("llama-bpe"));
  BERTH_REQUIRE_SHARED(vectors, "tokenizers/vectors/llama3.jsonl");
  EXPECT_EQ(ExpectVectors(GgufTokenizer(model), vectors, true), 480);
}

// Qwen2's file has Qwen3's words and merges but not its special tokens.
TEST(ReferenceVectors, Qwen2GivesTheReferenceIdsOfPlainText) {
  BERTH_REQUIRE_SHARED(model, VocabFile("qwen2"));
  BERTH_REQUIRE_SHARED(vectors, "tokenizers/vectors/qwen3.jsonl");
  EXPECT_GE(ExpectVectors(GgufTokenizer(model), vectors, false), 400);
}

TEST(ReferenceVectors, MistralGivesTheReferenceIds) {
  BERTH_REQUIRE_SHARED(json, "tokenizers/mistral-v1/tokenizer.json");
  BERTH_REQUIRE_SHARED(vectors, "tokenizers/vectors/mistral-v1.jsonl");
  const auto tokenizer = test::MakeTokenizer(test::SentencePieceFromJson(json));
  EXPECT_EQ(ExpectVectors(*tokenizer, vectors, true), 480);
}

TEST(RightAnswers, Llama3MergesWholeWordsAndGroupsDigits) {
  BERTH_REQUIRE_SHARED(model, VocabFile("llama-bpe"));
  const Tokenizer& tokenizer = GgufTokenizer(model);
  EXPECT_THAT(Ids(tokenizer, " Việt"), ElementsAre(101798));
  EXPECT_THAT(Ids(tokenizer, "请你基于以下「评估标准」"),
              ElementsAre(15225, 57668, 125510, 88852, 13177, 64479, 112494, 110778, 10646));
  EXPECT_THAT(Ids(tokenizer, "3333333+7777"), ElementsAre(8765, 8765, 18, 10, 15831, 22));
}

TEST(RightAnswers, Llama3BeginsWithExactlyOneBeginToken) {
  BERTH_REQUIRE_SHARED(model, VocabFile("llama-bpe"));
  const Tokenizer& tokenizer = GgufTokenizer(model);
  EXPECT_TRUE(tokenizer.adds_bos());
  EXPECT_THAT(*tokenizer.Encode("hello", {}), ElementsAre(128000, 15339));
  EXPECT_THAT(*tokenizer.Encode("<|begin_of_text|>hello", {.parse_special = true}), ElementsAre(128000, 15339));
}

TEST(RightAnswers, LlamaFallsBackToBytesForAnEmoji) {
  BERTH_REQUIRE_SHARED(model, VocabFile("llama-spm"));
  EXPECT_THAT(*GgufTokenizer(model).Encode("This is 🦙.cpp", {}),
              ElementsAre(1, 910, 338, 29871, 243, 162, 169, 156, 29889, 8223));
}

TEST(RightAnswers, Stories260KGivesTheReferenceIds) {
  BERTH_REQUIRE_SHARED(model, "models/stories260K-f32.gguf");
  EXPECT_THAT(*GgufTokenizer(model).Encode("Once upon a time", {}), ElementsAre(1, 403, 407, 261, 378));
}

TEST(RightAnswers, MistralSpacesAroundSpecialTokens) {
  BERTH_REQUIRE_SHARED(json, "tokenizers/mistral-v1/tokenizer.json");
  const auto tokenizer = test::MakeTokenizer(test::SentencePieceFromJson(json));
  EXPECT_THAT(*tokenizer->Encode("<s>hi</s> there", {.parse_special = true}), ElementsAre(1, 12014, 2, 28705, 736));
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{28705, 5374, 1318}), " leading x");
}

TEST(RightAnswers, MixtralChatTokensAreTokens) {
  BERTH_REQUIRE_SHARED(json, "tokenizers/mistral-v1/tokenizer.json");
  Vocabulary vocabulary = test::SentencePieceFromJson(json);
  ASSERT_EQ(test::AddToken(&vocabulary, "<|im_end|>", TokenType::kControl), 32000);
  ASSERT_EQ(test::AddToken(&vocabulary, "<|im_start|>", TokenType::kControl), 32001);
  const auto tokenizer = test::MakeTokenizer(std::move(vocabulary));
  EXPECT_THAT(*tokenizer->Encode("<|im_start|>user", {.parse_special = true}), ElementsAre(1, 32001, 2188));
}

TEST(RightAnswers, Phi3DecodeAndEncodeDoNotGrowSpaces) {
  BERTH_REQUIRE_SHARED(model, VocabFile("phi-3"));
  const Tokenizer& tokenizer = GgufTokenizer(model);
  for (const std::string text : {"hello", " hello", "  two spaces", "a\n b", " "}) {
    std::string looped = text;
    for (int i = 0; i < 4; ++i) looped = tokenizer.Decode(*tokenizer.Encode(looped, {}));
    EXPECT_EQ(looped, text);
  }
  EXPECT_THAT(Ids(tokenizer, "<|user|>\nhello<|end|>\n<|assistant|>", true), ElementsAre(32010, 22172, 32007, 32001));
}

TEST(RightAnswers, HalfAnEmojiIsNoTextYet) {
  BERTH_REQUIRE_DEFAULT_MODEL(model);
  const Tokenizer& tokenizer = GgufTokenizer(model);
  const std::vector<TokenId> ids = Ids(tokenizer, "👋");
  ASSERT_GT(ids.size(), 1u);
  IncrementalDecoder decoder(&tokenizer, true);
  std::string text;
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) text += decoder.Append(ids[i]);
  EXPECT_EQ(text, "");
  EXPECT_EQ(decoder.Append(ids.back()), "👋");
}

TEST(RealVocabularies, EndTokensAreAllThatEndATextOrATurn) {
  BERTH_REQUIRE_DEFAULT_MODEL(smollm2);
  BERTH_REQUIRE_SHARED(gpt2, VocabFile("gpt-2"));
  BERTH_REQUIRE_SHARED(llama3, VocabFile("llama-bpe"));
  BERTH_REQUIRE_SHARED(qwen2, VocabFile("qwen2"));
  BERTH_REQUIRE_SHARED(llama2, VocabFile("llama-spm"));
  BERTH_REQUIRE_SHARED(phi3, VocabFile("phi-3"));
  EXPECT_THAT(GgufTokenizer(smollm2).eos(), ElementsAre(0, 2));  // <|endoftext|> <|im_end|>
  EXPECT_THAT(GgufTokenizer(gpt2).eos(), ElementsAre(50256));
  EXPECT_THAT(GgufTokenizer(llama3).eos(), ElementsAre(128001, 128009));  // <|end_of_text|> <|eot_id|>
  EXPECT_THAT(GgufTokenizer(qwen2).eos(), ElementsAre(151643, 151645));   // <|endoftext|> <|im_end|>
  EXPECT_THAT(GgufTokenizer(llama2).eos(), ElementsAre(2));
  EXPECT_THAT(GgufTokenizer(phi3).eos(), ElementsAre(32000, 32007));  // <|endoftext|> <|end|>; </s> is user-defined
}

TEST(RealVocabularies, DescribeThemselves) {
  BERTH_REQUIRE_DEFAULT_MODEL(smollm2);
  BERTH_REQUIRE_SHARED(llama2, VocabFile("llama-spm"));
  const Tokenizer& bytes = GgufTokenizer(smollm2);
  EXPECT_EQ(bytes.description(), "gpt2/smollm");
  EXPECT_EQ(bytes.vocab_size(), 49152);
  EXPECT_EQ(bytes.bos(), 1);
  EXPECT_FALSE(bytes.adds_bos());
  EXPECT_FALSE(bytes.strips_leading_space());
  const Tokenizer& pieces = GgufTokenizer(llama2);
  EXPECT_EQ(pieces.description(), "llama (SentencePiece)");
  EXPECT_TRUE(pieces.adds_bos());
  EXPECT_TRUE(pieces.strips_leading_space());
}

// What has a token for every byte gives every text back, but for what normal form C changes.
TEST(RealVocabularies, DecodingGivesTheTextBack) {
  std::mt19937_64 random(16);
  for (const char* family : {"gpt-2", "llama-bpe", "qwen2"}) {
    BERTH_REQUIRE_SHARED(model, VocabFile(family));
    const Tokenizer& tokenizer = GgufTokenizer(model);
    const bool has_nfc = std::string(family) == "qwen2";
    for (int i = 0; i < 3000; ++i) {
      const std::string text = test::RandomText(&random, 60, [&](char32_t c) { return !has_nfc || c < 0x300; });
      const std::vector<TokenId> ids = Ids(tokenizer, text);
      ASSERT_EQ(tokenizer.Decode(ids), text) << family;
      ASSERT_GE(ids.size() * static_cast<std::size_t>(tokenizer.longest_piece_bytes()), text.size());
    }
  }
}

TEST(RealVocabularies, SentencePieceGivesTheTextBackToo) {
  std::mt19937_64 random(17);
  for (const char* family : {"llama-spm", "phi-3"}) {
    BERTH_REQUIRE_SHARED(model, VocabFile(family));
    for (int i = 0; i < 3000; ++i) {
      const std::string text = test::RandomText(&random, 60, [](char32_t c) { return c != 0x2581; });
      ASSERT_EQ(GgufTokenizer(model).Decode(Ids(GgufTokenizer(model), text)), text) << family;
    }
  }
}

TEST(RealVocabularies, ThreadsMayShareOne) {
  BERTH_REQUIRE_DEFAULT_MODEL(model);
  const Tokenizer& tokenizer = GgufTokenizer(model);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] { ExpectVectors(tokenizer, test::DataFile("smollm2-tokens.jsonl"), true); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace berth
