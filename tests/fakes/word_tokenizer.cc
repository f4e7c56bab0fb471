#include "fakes/word_tokenizer.h"

namespace berth::test {

WordTokenizer::WordTokenizer(std::int32_t vocab_size) {
  for (std::int32_t id = 0; id < vocab_size; ++id) words_.push_back(" w" + std::to_string(id));
}

absl::StatusOr<std::vector<TokenId>> WordTokenizer::Encode(std::string_view text,
                                                           const EncodeOptions& /*options*/) const {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

}  // namespace berth::test
