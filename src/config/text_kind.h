// What texts of the policy file may be: names, addresses, paths.
#pragma once

#include <cstdint>
#include <string_view>

namespace berth {

enum class TextKind : std::uint8_t {
  kPath,
  kAddress,  // HOST:PORT, [IPV6]:PORT or unix:PATH
  kLabel,    // a model or objective name: printable ASCII
  kClass,    // a class's name
  kTenant,   // a tenant's name
  kKeyId,    // an API key's name
  kSubject,  // of a certificate
  kSha256,   // 64 lower-case hexadecimal digits
};

// Empty where `text` may be a text of this kind, else what it must be.
std::string_view TextFault(TextKind kind, std::string_view text);
// As TextFault says it, as an ECMA 262 expression; empty = any.
std::string_view TextPattern(TextKind kind);

}  // namespace berth
