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

// 1 to `most` letters, digits and `others`, the first a letter or digit.
inline bool IsName(std::string_view text, std::size_t most, std::string_view others) {
  const auto is_alphanumeric = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  };
  return !text.empty() && text.size() <= most && is_alphanumeric(text.front()) &&
         std::all_of(text.begin(), text.end(),
                     [&](char c) { return is_alphanumeric(c) || others.find(c) != std::string_view::npos; });
}

// What a tenant may be called, in the policy file and by who calls.
inline bool IsTenantName(std::string_view text) { return IsName(text, 128, "_-.:@/+"); }
inline constexpr char kTenantNameRule[] = "must be a name: 1 to 128 letters, digits and any of _-.:@/+";

}  // namespace berth
