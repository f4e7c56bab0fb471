#include "tokenizer/pretokenizer.h"

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace berth {
namespace {

struct Char {
  char32_t code_point;
  std::size_t bytes;
  CharClass char_class;
};

// REQUIRES: position < text.size().
Char CharAt(std::string_view text, std::size_t position) {
  const Utf8Prefix prefix = ReadUtf8(text.substr(position));
  return {prefix.code_point, static_cast<std::size_t>(prefix.bytes), ClassOf(prefix.code_point)};
}

bool IsClassAt(std::string_view text, std::size_t position, CharClass char_class) {
  return position < text.size() && CharAt(text, position).char_class == char_class;
}

bool IsNewline(char32_t c) { return c == '\r' || c == '\n'; }

// End of the run of characters of one class that begins at `position`.
std::size_t RunEnd(std::string_view text, std::size_t position, CharClass char_class) {
  while (position < text.size()) {
    const Char c = CharAt(text, position);
    if (c.char_class != char_class) break;
    position += c.bytes;
  }
  return position;
}

// A run of white space, read once.
struct SpaceRun {
  std::size_t end;
  std::size_t last_begin;   // where its last character begins
  std::size_t newline_end;  // after its last \r or \n; 0 where it has none
};

SpaceRun ReadSpaces(std::string_view text, std::size_t position) {
  SpaceRun run{position, position, 0};
  while (run.end < text.size()) {
    const Char c = CharAt(text, run.end);
    if (c.char_class != CharClass::kSpace) break;
    run.last_begin = run.end;
    run.end += c.bytes;
    if (IsNewline(c.code_point)) run.newline_end = run.end;
  }
  return run;
}

// \s+(?!\S)|\s+ : all of the run at the end of the text; else all but its last character, which may belong to the next
// word, unless there is no other.
std::size_t SpacesEnd(std::string_view text, std::size_t position, const SpaceRun& run) {
  return run.end == text.size() || run.last_begin == position ? run.end : run.last_begin;
}

// Bytes of 's|'t|'re|'ve|'m|'ll|'d at the beginning of `text`; 0 where there is none.
std::size_t ContractionBytes(std::string_view text, bool ignore_case) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const auto lower = [&](char c) { return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  const char first = lower(text[1]);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (text.size() < 3) return 0;
  const char second = lower(text[2]);
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')) return 3;
  // U+017F (long s) is an s to any matcher that ignores case.
  if (ignore_case && text.substr(1, 2) == "\xC5\xBF") return 3;
  return 0;
}

std::size_t Gpt2WordEnd(std::string_view text, std::size_t position) {
  if (const std::size_t bytes = ContractionBytes(text.substr(position), /*ignore_case=*/false); bytes > 0) {
    return position + bytes;
  }
  const std::size_t body = text[position] == ' ' ? position + 1 : position;
  if (body < text.size()) {
    const Char c = CharAt(text, body);
    if (c.char_class != CharClass::kSpace) return RunEnd(text, body, c.char_class);
  }
  return SpacesEnd(text, position, ReadSpaces(text, position));
}

std::size_t Llama3WordEnd(std::string_view text, std::size_t position, int max_digits) {
  if (const std::size_t bytes = ContractionBytes(text.substr(position), /*ignore_case=*/true); bytes > 0) {
    return position + bytes;
  }
  const Char first = CharAt(text, position);
  if (first.char_class == CharClass::kLetter) return RunEnd(text, position, CharClass::kLetter);
  if (first.char_class == CharClass::kNumber) {
    for (int digits = 0; digits < max_digits && IsClassAt(text, position, CharClass::kNumber); ++digits) {
      position += CharAt(text, position).bytes;
    }
    return position;
  }
  // One character that is no newline may lead a word of letters.
  const std::size_t second = position + first.bytes;
  if (!IsNewline(first.code_point) && IsClassAt(text, second, CharClass::kLetter)) {
    return RunEnd(text, second, CharClass::kLetter);
  }
  const std::size_t body = first.code_point == ' ' ? second : position;
  if (IsClassAt(text, body, CharClass::kOther)) {
    std::size_t end = RunEnd(text, body, CharClass::kOther);
    while (end < text.size() && IsNewline(static_cast<unsigned char>(text[end]))) ++end;
    return end;
  }
  const SpaceRun run = ReadSpaces(text, position);
  return run.newline_end > 0 ? run.newline_end : SpacesEnd(text, position, run);
}

}  // namespace

std::string_view PreTokenizer::Next() {
  if (position_ == text_.size()) return {};
  const std::size_t begin = position_;
  position_ = WordEnd();
  return text_.substr(begin, position_ - begin);
}

std::size_t PreTokenizer::WordEnd() {
  switch (kind_) {
    case PreTokenizerKind::kGpt2:
      return Gpt2WordEnd(text_, position_);
    case PreTokenizerKind::kLlama3:
      return Llama3WordEnd(text_, position_, 3);
    case PreTokenizerKind::kQwen2:
      return Llama3WordEnd(text_, position_, 1);
    case PreTokenizerKind::kSmolLm:
      break;
  }
  if (position_ >= piece_end_) {
    const Char c = CharAt(text_, position_);
    if (c.char_class == CharClass::kNumber) return position_ + c.bytes;
    piece_end_ = position_;
    while (piece_end_ < text_.size()) {
      const Char next = CharAt(text_, piece_end_);
      if (next.char_class == CharClass::kNumber) break;
      piece_end_ += next.bytes;
    }
  }
  return Gpt2WordEnd(text_.substr(0, piece_end_), position_);
}

}  // namespace berth
