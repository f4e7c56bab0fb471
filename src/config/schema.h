// The policy file for editors.
#pragma once

#include <string>

namespace berth {

// JSON Schema (2020-12) of the policy file, made from the key table: types, ranges, words, defaults, and for each key
// whether a reload may change it. configs/berth.schema.json is this text.
std::string PolicySchema();

}  // namespace berth
