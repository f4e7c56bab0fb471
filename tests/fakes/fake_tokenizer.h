// A vocabulary that a test can read: token id = byte.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace berth::test {

// Ids 0 to 255 are the bytes; then the begin token, two end tokens, and the pieces that the test adds.
class FakeTokenizer final : public Tokenizer {
 public:
  static constexpr TokenId kBos = 256;
  static constexpr TokenId kEos = 257;
  static constexpr TokenId kEndOfTurn = 258;
  static constexpr TokenId kFirstPiece = 259;

  explicit FakeTokenizer(std::vector<std::string> pieces = {});

  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text, const EncodeOptions& options) const override;
  std::string_view Piece(TokenId id) const override;
  std::string_view Spelling(TokenId id) const override;
  std::int32_t vocab_size() const override;
  TokenId bos() const override { return kBos; }
  std::span<const TokenId> eos() const override { return eos_; }
  bool adds_bos() const override { return false; }
  bool strips_leading_space() const override { return strips_leading_space_; }
  std::int32_t longest_piece_bytes() const override;
  std::string description() const override { return "fake bytes"; }

  void set_strips_leading_space(bool strips) { strips_leading_space_ = strips; }

 private:
  std::vector<std::string> spellings_;  // by id
  std::vector<TokenId> eos_ = {kEos, kEndOfTurn};
  bool strips_leading_space_ = false;
};

// The ids of a text's bytes.
std::vector<TokenId> Bytes(std::string_view text);

}  // namespace berth::test
