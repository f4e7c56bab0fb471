// The pre-tokenizers' real regular expressions, run by PCRE2: the oracle for the scanners.
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <gtest/gtest.h>
#include <pcre2.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace berth::test {

class Pcre2Matcher {
 public:
  explicit Pcre2Matcher(const std::string& pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.c_str()), pattern.size(), PCRE2_UTF | PCRE2_UCP,
                              &error, &offset, nullptr));
    if (code_ == nullptr) {
      ADD_FAILURE() << "pattern error " << error << " at " << offset << ": " << pattern;
      return;
    }
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
    match_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  }

  // Where the match that begins at `from` ends; nothing where none begins there. REQUIRES: valid UTF-8.
  std::optional<std::size_t> MatchEnd(std::string_view text, std::size_t from) const {
    const int count = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                  PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, match_.get(), nullptr);
    if (count < 1) return std::nullopt;
    return pcre2_get_ovector_pointer(match_.get())[1];
  }

  // The matches that follow each other from the beginning. REQUIRES: they cover the text.
  std::vector<std::string> Words(std::string_view text) const {
    std::vector<std::string> words;
    for (std::size_t position = 0; position < text.size();) {
      const std::optional<std::size_t> end = MatchEnd(text, position);
      if (!end || *end <= position) {
        ADD_FAILURE() << "no match at byte " << position << " of '" << text << "'";
        break;
      }
      words.emplace_back(text.substr(position, *end - position));
      position = *end;
    }
    return words;
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
  std::unique_ptr<pcre2_match_data, Free> match_;
};

inline CharClass Pcre2ClassOf(char32_t c) {
  static const Pcre2Matcher letter("\\p{L}");
  static const Pcre2Matcher number("\\p{N}");
  static const Pcre2Matcher space("\\s");
  std::string text;
  AppendUtf8(c, &text);
  if (letter.MatchEnd(text, 0)) return CharClass::kLetter;
  if (number.MatchEnd(text, 0)) return CharClass::kNumber;
  if (space.MatchEnd(text, 0)) return CharClass::kSpace;
  return CharClass::kOther;
}

}  // namespace berth::test
