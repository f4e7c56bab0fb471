#include "fakes/fake_tokenizer.h"

#include <algorithm>

namespace berth::test {

FakeTokenizer::FakeTokenizer(std::vector<std::string> pieces) {
  for (int byte = 0; byte < 256; ++byte) spellings_.emplace_back(1, static_cast<char>(byte));
  spellings_.insert(spellings_.end(), {"<bos>", "<eos>", "<end_of_turn>"});
  spellings_.insert(spellings_.end(), pieces.begin(), pieces.end());
}

absl::StatusOr<std::vector<TokenId>> FakeTokenizer::Encode(std::string_view text, const EncodeOptions&) const {
  return Bytes(text);
}

std::string_view FakeTokenizer::Piece(TokenId id) const {
  const bool control = id >= kBos && id < kFirstPiece;
  return control ? std::string_view() : Spelling(id);
}

std::string_view FakeTokenizer::Spelling(TokenId id) const { return spellings_.at(static_cast<std::size_t>(id)); }

std::int32_t FakeTokenizer::vocab_size() const { return static_cast<std::int32_t>(spellings_.size()); }

std::int32_t FakeTokenizer::longest_piece_bytes() const {
  std::size_t longest = 1;
  for (const std::string& spelling : spellings_) longest = std::max(longest, spelling.size());
  return static_cast<std::int32_t>(longest);
}

std::vector<TokenId> Bytes(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

}  // namespace berth::test
