// Cuts text into the words inside which byte-level BPE merges. Each vocabulary was trained on words cut by one regular
// expression; these are hand-written scanners for them: no recursion, no backtracking over more than one run of white
// space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace berth {

enum class PreTokenizerKind : std::uint8_t {
  // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  kGpt2,
  // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  kLlama3,
  // kLlama3 with one \p{N} a word.
  kQwen2,
  // Each \p{N} a word of its own; what is between them as kGpt2, each piece for itself.
  kSmolLm,
};

// The words of one text, in order; together they are the text.
class PreTokenizer {
 public:
  // REQUIRES: `text` is valid UTF-8 and outlives the words.
  PreTokenizer(PreTokenizerKind kind, std::string_view text) : kind_(kind), text_(text) {}

  // The next word; empty at the end.
  std::string_view Next();

 private:
  std::size_t WordEnd();

  PreTokenizerKind kind_;
  std::string_view text_;
  std::size_t position_ = 0;
  std::size_t piece_end_ = 0;  // kSmolLm: where the piece between two numbers ends
};

}  // namespace berth
