#include "toy_vocabularies.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"

namespace berth::test {
namespace {

template <typename T>
T ValueOrAbort(absl::StatusOr<T> result) {
  if (!result.ok()) {
    std::cerr << result.status() << '\n';
    std::abort();
  }
  return *std::move(result);
}

}  // namespace

TokenId AddToken(Vocabulary* vocabulary, const std::string& spelling, TokenType type) {
  vocabulary->tokens.push_back(spelling);
  vocabulary->types.push_back(type);
  if (vocabulary->model == VocabularyModel::kSentencePiece) vocabulary->scores.push_back(0);
  return static_cast<TokenId>(vocabulary->tokens.size() - 1);
}

Vocabulary ToyByteLevel(std::vector<std::pair<std::string, std::string>> merges) {
  Vocabulary vocabulary;
  vocabulary.description = "toy";
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelling;
    AppendUtf8(SpellByte(static_cast<unsigned char>(byte)), &spelling);
    AddToken(&vocabulary, spelling, TokenType::kNormal);
  }
  for (const auto& [left, right] : merges) {
    const std::string result = left + right;
    if (std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), result) == vocabulary.tokens.end()) {
      AddToken(&vocabulary, result, TokenType::kNormal);
    }
  }
  vocabulary.merges = std::move(merges);
  return vocabulary;
}

Vocabulary ToySentencePiece(const std::vector<std::pair<std::string, float>>& pieces) {
  Vocabulary vocabulary;
  vocabulary.model = VocabularyModel::kSentencePiece;
  vocabulary.description = "toy";
  AddToken(&vocabulary, "<unk>", TokenType::kUnknown);
  vocabulary.bos = AddToken(&vocabulary, "<s>", TokenType::kControl);
  vocabulary.eos = {AddToken(&vocabulary, "</s>", TokenType::kControl)};
  for (int byte = 0; byte < 256; ++byte) {
    char spelling[8];
    std::snprintf(spelling, sizeof spelling, "<0x%02X>", static_cast<unsigned>(byte));
    AddToken(&vocabulary, spelling, TokenType::kByte);
  }
  for (const auto& [spelling, score] : pieces) {
    AddToken(&vocabulary, spelling, TokenType::kNormal);
    vocabulary.scores.back() = score;
  }
  return vocabulary;
}

std::unique_ptr<Tokenizer> MakeTokenizer(Vocabulary vocabulary) {
  return ValueOrAbort(CreateTokenizer(std::move(vocabulary)));
}

std::vector<TokenId> Ids(const Tokenizer& tokenizer, std::string_view text, bool parse_special) {
  return ValueOrAbort(tokenizer.Encode(text, {.parse_special = parse_special, .add_bos = false}));
}

}  // namespace berth::test
