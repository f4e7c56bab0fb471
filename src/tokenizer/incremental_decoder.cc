#include "tokenizer/incremental_decoder.h"

#include <utility>

#include "base/utf8.h"

namespace berth {

IncrementalDecoder::IncrementalDecoder(const Tokenizer* tokenizer, bool at_text_start)
    : tokenizer_(tokenizer), at_text_start_(at_text_start) {}

std::string IncrementalDecoder::Append(TokenId id) {
  // Models may have more rows than the vocabulary has tokens; such ids stand for nothing.
  if (id < 0 || id >= tokenizer_->vocab_size()) return {};
  std::string_view piece = tokenizer_->Piece(id);
  if (at_text_start_ && !piece.empty()) {
    at_text_start_ = false;
    if (tokenizer_->strips_leading_space() && piece.front() == ' ') piece.remove_prefix(1);
  }

  std::string bytes = std::exchange(held_, {});
  bytes += piece;
  std::string text;
  for (std::string_view rest = bytes; !rest.empty();) {
    const Utf8Prefix prefix = ReadUtf8(rest);
    if (prefix.state == Utf8State::kUnfinished) {
      held_ = rest;
      break;
    }
    const auto size = static_cast<std::size_t>(prefix.bytes);
    text += prefix.state == Utf8State::kValid ? rest.substr(0, size) : kReplacementCharacter;
    rest.remove_prefix(size);
  }
  return text;
}

std::string IncrementalDecoder::Flush() {
  // Up to here the bytes could begin a character, so they are one maximal subpart.
  return std::exchange(held_, {}).empty() ? std::string() : std::string(kReplacementCharacter);
}

}  // namespace berth
