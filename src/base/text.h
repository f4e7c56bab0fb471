// Texts that others wrote, in our messages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace berth {

// The longest beginning of at most `max_bytes` that ends between two characters of UTF-8: so a name cut to size can
// still stand in a message that must be UTF-8. Text that is not UTF-8 is cut somewhere in it.
inline std::string_view CutAtCharacter(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  std::size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end);
}

inline bool IsPrintableAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c <= 0x7E; });
}

}  // namespace berth
