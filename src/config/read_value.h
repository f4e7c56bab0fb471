// A node of the file as the value of a key.
#pragma once

#include <string>

#include "config/diagnostics.h"
#include "config/field.h"
#include "config/yaml_tree.h"

namespace berth {

// Sets the field, or says at `path` what is wrong with the node and leaves the field as it was (a list may be set in
// part).
void ReadValue(const Rule& rule, const Field& field, const YamlNode& node, const std::string& path,
               Diagnostics* diagnostics);

// What `rule` asks for, as it stands in messages: "a whole number from 1 to 256".
std::string Wanted(const Rule& rule, const Field& field);

}  // namespace berth
