// Sizes as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace berth {

// "512MiB", "1.5GiB", "2Gi", "500MB" → bytes. A unit is required (KiB MiB GiB TiB, Ki Mi Gi Ti, kB MB GB TB, B); 0
// needs none. InvalidArgument says what was found.
absl::StatusOr<std::int64_t> ParseByteSize(std::string_view text);

// "104.0 MiB": binary units, one decimal; whole bytes below 1 KiB.
std::string FormatBytes(std::int64_t bytes);

}  // namespace berth
