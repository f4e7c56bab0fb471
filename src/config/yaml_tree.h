// A YAML document as a tree with the place of every node, bounded before anything of it is believed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/diagnostics.h"

namespace berth {

inline constexpr std::size_t kMaxPolicyBytes = 1 << 20;  // as much as a Kubernetes ConfigMap holds
inline constexpr int kMaxYamlDepth = 16;
inline constexpr int kMaxYamlNodes = 100'000;
inline constexpr std::size_t kMaxScalarBytes = 4096;

struct YamlNode {
  enum class Kind : std::uint8_t { kNull, kScalar, kMap, kList };

  Kind kind = Kind::kNull;
  Location location;
  std::string text;                // of a scalar
  bool quoted = false;             // the scalar is a text, whatever it looks like
  std::vector<YamlNode> keys;      // of a map: scalars, as many as children, in the order of the file
  std::vector<YamlNode> children;  // of a map or a list
};

// "a list", "a map", ...
const char* KindName(YamlNode::Kind kind);

// The one document of `text`. What is not UTF-8 or not YAML, an empty text, several documents, anchors, aliases, tags,
// keys that are no scalars, and what is larger or deeper than the bounds above is told to `diagnostics`, and nothing
// comes back.
std::optional<YamlNode> ParseYaml(std::string_view text, Diagnostics* diagnostics);

}  // namespace berth
