// What somebody may have meant by a name that is not known.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace berth {

// "; did you mean batch?" where one of `known` is close; else "; known are: a, b", bounded; empty where none is known.
std::string NearestHint(std::string_view name, std::span<const std::string_view> known);

// The same for a key that does not exist in the section `pattern` ("" = the top, "classes.*.queue"). Knows vLLM's flags
// and keys that belong elsewhere.
std::string KeyHint(std::string_view pattern, std::string_view name);

// A flag of vLLM's, in the spelling of a key (max_num_seqs), and what it is here.
struct VllmFlag {
  std::string_view name;
  std::string_view key;   // empty where nothing needs to be set
  std::string_view note;  // what differs, or why there is no key
};
std::span<const VllmFlag> VllmFlags();

}  // namespace berth
