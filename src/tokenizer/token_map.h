// Spelling to id.
#pragma once

#include <functional>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "berth/units.h"

namespace berth {

// Keys are views of strings that outlive the map. abseil's own hash knows no std::string_view where abseil has its own.
using TokenMap = absl::flat_hash_map<std::string_view, TokenId, std::hash<std::string_view>>;

inline TokenId FindToken(const TokenMap& map, std::string_view spelling) {
  const auto it = map.find(spelling);
  return it == map.end() ? kNoToken : it->second;
}

}  // namespace berth
