#include "tokenizer/tokenizer.h"

#include <utility>

#include "absl/status/status.h"
#include "tokenizer/gguf_vocabulary.h"
#include "tokenizer/incremental_decoder.h"
#include "tokenizer/vocabulary.h"

namespace berth {

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromGguf(const GgufFile& file) {
  absl::StatusOr<Vocabulary> vocabulary = ReadGgufVocabulary(file);
  if (!vocabulary.ok()) return vocabulary.status();
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = CreateTokenizer(*std::move(vocabulary));
  if (tokenizer.ok()) return tokenizer;
  return absl::InvalidArgumentError(file.path() +
                                    ": tokenizer.ggml.tokens: " + std::string(tokenizer.status().message()));
}

std::string Tokenizer::Decode(std::span<const TokenId> ids) const {
  IncrementalDecoder decoder(this, /*at_text_start=*/true);
  std::string text;
  for (const TokenId id : ids) text += decoder.Append(id);
  return text += decoder.Flush();
}

}  // namespace berth
