#pragma once

#include <cstddef>
#include <cstdint>

namespace berth {

// Ids and counts are signed, places in a vector are not. REQUIRES: i >= 0.
constexpr std::size_t Index(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace berth
