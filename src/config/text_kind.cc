#include "config/text_kind.h"

#include <algorithm>
#include <string>

#include "base/text.h"

namespace berth {
namespace {

bool IsAlphanumeric(char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

// 1 to `most` letters, digits and `others`, the first a letter or digit.
bool IsName(std::string_view text, std::size_t most, std::string_view others) {
  return !text.empty() && text.size() <= most && IsAlphanumeric(text.front()) &&
         std::all_of(text.begin(), text.end(),
                     [&](char c) { return IsAlphanumeric(c) || others.find(c) != std::string_view::npos; });
}

bool IsPrintable(std::string_view text, std::size_t most) {
  return !text.empty() && text.size() <= most && IsPrintableAscii(text);
}

bool IsSha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool IsAddress(std::string_view text) {
  constexpr std::string_view kUnix = "unix:";
  if (text.size() > 256) return false;
  if (text.starts_with(kUnix)) return text.size() > kUnix.size();
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  const bool bracketed = host.front() == '[' && host.back() == ']' && host.size() > 2;
  if (!bracketed && host.find_first_of(":[] /") != std::string_view::npos) return false;
  const bool digits = !port.empty() && port.size() <= 5 &&
                      std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
  return digits && std::stoi(std::string(port)) <= 65535;
}

}  // namespace

std::string_view TextFault(TextKind kind, std::string_view text) {
  switch (kind) {
    case TextKind::kPath:
      return text.empty() ? "must not be empty" : "";
    case TextKind::kAddress:
      return IsAddress(text) ? "" : "must be HOST:PORT, [IPV6]:PORT or unix:PATH";
    case TextKind::kLabel:
      return IsPrintable(text, 128) ? "" : "must be 1 to 128 printable ASCII characters";
    case TextKind::kClass:
      return IsName(text, 64, "_-") ? "" : "must be a name: 1 to 64 letters, digits, '_' and '-'";
    case TextKind::kTenant:
      return IsName(text, 128, "_-.:@/+") ? "" : "must be a name: 1 to 128 letters, digits and any of _-.:@/+";
    case TextKind::kKeyId:
      return IsName(text, 64, "_-.") ? "" : "must be a name: 1 to 64 letters, digits, '_', '-' and '.'";
    case TextKind::kSubject:
      return IsPrintable(text, 1024) ? "" : "must be 1 to 1024 printable ASCII characters";
    case TextKind::kSha256:
      return IsSha256(text) ? "" : "must be the SHA-256 of the key: 64 lower-case hexadecimal digits";
  }
  return "";
}

std::string_view TextPattern(TextKind kind) {
  switch (kind) {
    case TextKind::kPath:
      return "^.+$";
    case TextKind::kAddress:
      return "^(unix:.+|(\\[[^\\]]+\\]|[^:\\[\\] /]+):[0-9]{1,5})$";
    case TextKind::kLabel:
      return "^[ -~]{1,128}$";
    case TextKind::kClass:
      return "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$";
    case TextKind::kTenant:
      return "^[A-Za-z0-9][A-Za-z0-9_.:@/+-]{0,127}$";
    case TextKind::kKeyId:
      return "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$";
    case TextKind::kSubject:
      return "^[ -~]{1,1024}$";
    case TextKind::kSha256:
      return "^[0-9a-f]{64}$";
  }
  return "";
}

}  // namespace berth
