// SentencePiece BPE: the whole text is one word of characters, merged pair by pair into the piece with the highest
// score. Source: Kudo and Richardson, "SentencePiece" (2018); google/sentencepiece, src/bpe_model.cc.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/text_model.h"
#include "tokenizer/token_map.h"
#include "tokenizer/vocabulary.h"

namespace berth {

// How SentencePiece spells a space: U+2581.
inline constexpr std::string_view kSpaceSpelling = "\xE2\x96\x81";

// The byte that "<0x0A>" stands for; -1 where `spelling` is not of that form.
int ByteOfSpelling(std::string_view spelling);

class SentencePieceBpe final : public TextModel {
 public:
  // `spellings`: the vocabulary's tokens, where they outlive the model.
  SentencePieceBpe(const Vocabulary& vocabulary, std::span<const std::string> spellings);

  // Characters that are no token become byte tokens.
  void Encode(std::string_view text, std::vector<TokenId>* ids) const override;

  // kNoToken where the vocabulary has no token for the byte.
  TokenId ByteToken(unsigned char byte) const { return byte_tokens_[byte]; }

 private:
  struct Merger;

  bool add_space_prefix_;
  std::array<TokenId, 256> byte_tokens_;
  TokenMap pieces_;  // tokens that text may become
  std::size_t longest_piece_bytes_ = 0;
  std::vector<float> scores_;
};

}  // namespace berth
