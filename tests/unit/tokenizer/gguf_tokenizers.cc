#include "gguf_tokenizers.h"

#include <cstdlib>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "fakes/test_data.h"
#include "model/gguf.h"
#include "tokenizer/spm.h"

namespace berth::test {

const Tokenizer& GgufTokenizer(const std::string& path) {
  static std::map<std::string, std::unique_ptr<Tokenizer>> loaded;
  std::unique_ptr<Tokenizer>& tokenizer = loaded[path];
  if (tokenizer != nullptr) return *tokenizer;
  const auto file = GgufFile::Open(path);
  if (!file.ok()) {
    std::cerr << file.status() << '\n';
    std::abort();
  }
  auto result = Tokenizer::FromGguf(**file);
  if (!result.ok()) {
    std::cerr << result.status() << '\n';
    std::abort();
  }
  tokenizer = *std::move(result);
  return *tokenizer;
}

Vocabulary SentencePieceFromJson(const std::string& path) {
  const nlohmann::json json = nlohmann::json::parse(ReadFile(path));
  Vocabulary vocabulary;
  vocabulary.model = VocabularyModel::kSentencePiece;
  vocabulary.description = path;
  const nlohmann::json& ids = json["model"]["vocab"];
  vocabulary.tokens.resize(ids.size());
  vocabulary.types.resize(ids.size(), TokenType::kNormal);
  vocabulary.scores.resize(ids.size());
  for (const auto& [spelling, id] : ids.items()) {
    const auto i = id.get<std::size_t>();
    vocabulary.tokens[i] = spelling;
    if (ByteOfSpelling(spelling) >= 0) vocabulary.types[i] = TokenType::kByte;
  }
  const nlohmann::json& merges = json["model"]["merges"];
  for (std::size_t rank = merges.size(); rank-- > 0;) {
    std::string result = merges[rank].get<std::string>();
    result.erase(result.find(' '), 1);
    vocabulary.scores[ids[result].get<std::size_t>()] = -static_cast<float>(rank);
  }
  for (const nlohmann::json& token : json["added_tokens"]) {
    vocabulary.types[token["id"].get<std::size_t>()] = TokenType::kControl;
    if (token["content"] == "<s>") vocabulary.bos = token["id"].get<TokenId>();
    if (token["content"] == "</s>") vocabulary.eos = {token["id"].get<TokenId>()};
  }
  vocabulary.add_bos = true;
  return vocabulary;
}

}  // namespace berth::test
