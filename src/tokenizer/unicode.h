// What tokenizers need to know of Unicode 15: which characters are letters, numbers and white space, and the normal
// form C.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace berth {

enum class CharClass : std::uint8_t {
  kOther = 0,
  kLetter = 1,  // \p{L}
  kNumber = 2,  // \p{N}
  kSpace = 3,   // \s: the property White_Space, so U+180E (Mongolian vowel separator) is none
};

CharClass ClassOf(char32_t code_point);

// `text` in normal form C: a view of `text` itself where nothing can change, else of `*storage`. n log n for any input.
// REQUIRES: valid UTF-8.
std::string_view NormalizeNfc(std::string_view text, std::string* storage);

// A text and its normal form C: n bytes of the form come from at most this many times n bytes. The worst is 3.5: U+1FBE
// U+0308 U+0301 (7 bytes) and U+0390 (2 bytes).
inline constexpr std::int32_t kMaxNfcShrink = 4;

}  // namespace berth
