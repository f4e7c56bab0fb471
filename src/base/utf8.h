// UTF-8, byte by byte: what a text begins with, whether it is whole, and what to show where it is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace berth {

enum class Utf8State : std::uint8_t {
  kValid,       // one whole character
  kInvalid,     // bytes that can begin no character: a maximal subpart (Unicode 15, section 3.9, table 3-8)
  kUnfinished,  // the text ends inside what may still become a character
};

struct Utf8Prefix {
  char32_t code_point;  // kValid only, else 0
  int bytes;            // what it takes of the text, ≥ 1
  Utf8State state;
};

// What `text` begins with. REQUIRES: not empty.
Utf8Prefix ReadUtf8(std::string_view text);

// Offset of the first byte that belongs to no whole character; nothing where the text is valid.
std::optional<std::size_t> FindInvalidUtf8(std::string_view text);

// REQUIRES: a Unicode scalar value.
void AppendUtf8(char32_t code_point, std::string* text);

// U+FFFD, shown for each maximal subpart.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

}  // namespace berth
