// The digest by which files and API keys are known.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace berth {

// SHA-256 (FIPS 180-4).
using Sha256Digest = std::array<std::uint64_t, 4>;  // in the order of the bytes, each of 8 as the machine stores them

Sha256Digest Sha256(std::string_view data);

// In 64 lower-case hexadecimal digits.
std::string Sha256Hex(std::string_view data);

// The digest that Sha256Hex would write so; nothing for what it never writes.
std::optional<Sha256Digest> ParseSha256(std::string_view hex);

}  // namespace berth
