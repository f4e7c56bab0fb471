// The digest by which files and API keys are known.
#pragma once

#include <string>
#include <string_view>

namespace berth {

// SHA-256 (FIPS 180-4) in 64 lower-case hexadecimal digits.
std::string Sha256Hex(std::string_view data);

}  // namespace berth
