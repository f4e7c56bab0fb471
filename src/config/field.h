// What a key of the policy file holds, and the field it sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/server_config.h"
#include "config/text_kind.h"

namespace berth {

enum class ValueKind : std::uint8_t {
  kSwitch,    // true or false
  kWhole,     // a whole number from min to max
  kReal,      // a number above min, at most max
  kDuration,  // from min to max nanoseconds
  kShare,     // a % from min to max millionths
  kBytes,     // a size from min to max bytes
  kQuantity,  // blocks, bytes and shares as far as `units` allows
  kWord,      // one of the words of the field's type
  kText,      // a text of the kind `text`
  kTexts,     // a list of such texts
  kApiKeys,   // a list of {id, sha256, admin}
};

inline constexpr unsigned kInBlocks = 1;
inline constexpr unsigned kInBytes = 2;
inline constexpr unsigned kInShares = 4;

struct Rule {
  ValueKind kind = ValueKind::kSwitch;
  std::int64_t min = 0;
  std::int64_t max = 0;
  // Stands for "absent", or for 0 where the field cannot be absent: "none", "auto", "all". Empty = no such word.
  std::string_view word = {};
  unsigned units = 0;
  TextKind text = TextKind::kPath;
};

// The field a key sets. An optional that is empty is what the rule's word stands for.
using Field =
    std::variant<bool*, std::int32_t*, std::int64_t*, std::optional<std::int64_t>*, double*, Duration*,
                 std::optional<Duration>*, Quantity*, std::optional<Quantity>*, Overload*, DeadlineRequirement*,
                 ClassStop*, ReloadMode*, BackendChoice*, std::optional<KvDtype>*, std::string*,
                 std::vector<std::string>*, std::optional<std::vector<std::string>>*, std::vector<ApiKeySettings>*>;

// The words of a kWord field, in the order of their values; what GetWord and SetWord speak of is the index.
std::span<const std::string_view> WordsOf(const Field& field);
std::size_t GetWord(const Field& field);
void SetWord(const Field& field, std::size_t word);

// The field's value as it may stand in a file; API keys by their ids.
std::string FormatField(const Rule& rule, const Field& field);

}  // namespace berth
