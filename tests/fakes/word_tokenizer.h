// A vocabulary of numbered words: token 12 is " w12". None of them ends a text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace berth::test {

class WordTokenizer final : public Tokenizer {
 public:
  explicit WordTokenizer(std::int32_t vocab_size);

  // Bytes as token ids.
  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text, const EncodeOptions& options) const override;
  std::string_view Piece(TokenId id) const override { return Spelling(id); }
  std::string_view Spelling(TokenId id) const override { return words_.at(static_cast<std::size_t>(id)); }
  std::int32_t vocab_size() const override { return static_cast<std::int32_t>(words_.size()); }
  TokenId bos() const override { return kNoToken; }
  std::span<const TokenId> eos() const override { return {}; }
  bool adds_bos() const override { return false; }
  bool strips_leading_space() const override { return false; }
  std::int32_t longest_piece_bytes() const override { return static_cast<std::int32_t>(words_.back().size()); }
  std::string description() const override { return "numbered words"; }

 private:
  std::vector<std::string> words_;
};

}  // namespace berth::test
