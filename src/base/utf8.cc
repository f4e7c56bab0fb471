#include "base/utf8.h"

namespace berth {

Utf8Prefix ReadUtf8(std::string_view text) {
  const auto byte_at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte_at(0);
  if (lead < 0x80) return {lead, 1, Utf8State::kValid};

  // The second byte's range excludes overlong forms, surrogates and what lies above U+10FFFF (table 3-7).
  std::size_t size = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  char32_t code_point = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    size = 2;
    code_point = lead & 0x1F;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    size = 3;
    code_point = lead & 0x0F;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    size = 4;
    code_point = lead & 0x07;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {0, 1, Utf8State::kInvalid};
  }

  for (std::size_t i = 1; i < size; ++i) {
    if (i == text.size()) return {0, static_cast<int>(i), Utf8State::kUnfinished};
    const unsigned char byte = byte_at(i);
    if (byte < low || byte > high) return {0, static_cast<int>(i), Utf8State::kInvalid};
    code_point = (code_point << 6) | (byte & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {code_point, static_cast<int>(size), Utf8State::kValid};
}

std::optional<std::size_t> FindInvalidUtf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const Utf8Prefix prefix = ReadUtf8(text.substr(i));
    if (prefix.state != Utf8State::kValid) return i;
    i += static_cast<std::size_t>(prefix.bytes);
  }
  return std::nullopt;
}

void AppendUtf8(char32_t code_point, std::string* text) {
  const auto continuation = [&](int shift) {
    text->push_back(static_cast<char>(0x80 | ((code_point >> shift) & 0x3F)));
  };
  if (code_point < 0x80) {
    text->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    text->push_back(static_cast<char>(0xC0 | (code_point >> 6)));
    continuation(0);
  } else if (code_point < 0x10000) {
    text->push_back(static_cast<char>(0xE0 | (code_point >> 12)));
    continuation(6);
    continuation(0);
  } else {
    text->push_back(static_cast<char>(0xF0 | (code_point >> 18)));
    continuation(12);
    continuation(6);
    continuation(0);
  }
}

}  // namespace berth
