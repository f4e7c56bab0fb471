#include "config/schema.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "config/key_table.h"
#include "config/read_value.h"

namespace berth {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSizePattern = "^[0-9]+(\\.[0-9]+)? ?(B|[KMGT]i|[KMGT]iB|[kMGT]B)$";
constexpr const char* kSharePattern = "^[0-9]+(\\.[0-9]{1,4})?%$";
constexpr const char* kTimePattern = "^([0-9]+(\\.[0-9]{1,3})?(d|h|m|s|ms|us|ns))+$";

Json Text(std::string_view pattern) { return {{"type", "string"}, {"pattern", std::string(pattern)}}; }
Json ZeroToo() { return {{"const", 0}}; }

Json ApiKeyList() {
  return {{"type", "array"},
          {"items",
           {{"type", "object"},
            {"additionalProperties", false},
            {"required", {"id", "sha256"}},
            {"properties",
             {{"id", Text(TextPattern(TextKind::kKeyId))},
              {"sha256", Text(TextPattern(TextKind::kSha256))},
              {"admin", {{"type", "boolean"}, {"default", false}}}}}}}};
}

// The alternatives of which a value is one.
std::vector<Json> Alternatives(const Rule& rule, const Field& field) {
  switch (rule.kind) {
    case ValueKind::kSwitch:
      return {{{"type", "boolean"}}};
    case ValueKind::kWhole:
      return {{{"type", "integer"}, {"minimum", rule.min}, {"maximum", rule.max}}};
    case ValueKind::kReal:
      return {{{"type", "number"}, {"exclusiveMinimum", rule.min}, {"maximum", rule.max}}};
    case ValueKind::kDuration: {
      std::vector<Json> result = {Text(kTimePattern)};
      if (rule.min == 0) result.push_back(ZeroToo());
      return result;
    }
    case ValueKind::kShare:
      return {Text(kSharePattern)};
    case ValueKind::kBytes: {
      std::vector<Json> result = {Text(kSizePattern)};
      if (rule.min == 0) result.push_back(ZeroToo());
      return result;
    }
    case ValueKind::kQuantity: {
      std::vector<Json> result;
      if ((rule.units & kInBlocks) != 0)
        result.push_back({{"type", "integer"}, {"minimum", 0}, {"maximum", INT32_MAX}});
      if ((rule.units & kInBytes) != 0) result.push_back(Text(kSizePattern));
      if ((rule.units & kInShares) != 0) result.push_back(Text(kSharePattern));
      return result;
    }
    case ValueKind::kWord: {
      Json words = Json::array();
      for (const std::string_view word : WordsOf(field)) words.push_back(std::string(word));
      return {{{"enum", words}}};
    }
    case ValueKind::kText:
      return {Text(TextPattern(rule.text))};
    case ValueKind::kTexts:
      return {{{"type", "array"}, {"uniqueItems", true}, {"items", Text(TextPattern(rule.text))}}};
    case ValueKind::kApiKeys:
      return {ApiKeyList()};
  }
  return {};
}

Json Leaf(const Key& key) {
  ServerConfig config;
  ClassSettings service_class;
  TenantSettings tenant;
  const Field field = key.field({&config, &service_class, &tenant});
  std::vector<Json> alternatives = Alternatives(key.rule, field);
  if (!key.rule.word.empty()) alternatives.push_back({{"const", std::string(key.rule.word)}});
  Json leaf = alternatives.size() == 1 ? alternatives.front() : Json{{"anyOf", alternatives}};
  leaf["description"] = std::string(key.help);
  if (const std::string value = FormatField(key.rule, field); !value.empty()) {
    // Numbers, switches and lists as such; the rest as the text it is.
    const Json parsed = Json::parse(value, nullptr, false);
    leaf["default"] = parsed.is_discarded() ? Json(value) : parsed;
  }
  leaf["x-berth-effect"] = EffectName(key.effect);
  return leaf;
}

Json Map() { return {{"type", {"object", "null"}}, {"additionalProperties", false}, {"properties", Json::object()}}; }

// The schema object for a path, made on the way to a key.
Json* Descend(Json* schema, std::string_view name, std::string_view section) {
  if (name != "*") {
    Json& next = (*schema)["properties"][std::string(name)];
    if (next.is_null()) next = Map();
    return &next;
  }
  // Named by the operator: one schema for all.
  const TextKind kind = section.starts_with("tenants") ? TextKind::kTenant : TextKind::kClass;
  schema->erase("properties");  // before a reference is taken: an ordered object moves what it holds
  Json& next = (*schema)["patternProperties"][std::string(TextPattern(kind))];
  if (next.is_null()) next = Map();
  return &next;
}

}  // namespace

std::string PolicySchema() {
  Json schema = Map();
  schema["type"] = "object";
  schema["required"] = {"version"};
  schema["properties"]["version"] = {{"const", 1}, {"description", "of the format"}};
  for (const Key& key : PolicyKeys()) {
    Json* at = &schema;
    std::string_view rest = key.path;
    for (std::size_t dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
      at = Descend(at, rest.substr(0, dot), key.path);
      rest.remove_prefix(dot + 1);
    }
    if (rest == "*") {
      *Descend(at, rest, key.path) = Leaf(key);
    } else {
      (*at)["properties"][std::string(rest)] = Leaf(key);
    }
  }
  Json head = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
               {"title", "Berth's policy file"},
               {"description", "x-berth-effect: live keys change by a reload, restart keys only by a restart"}};
  head.update(schema);
  return head.dump(2) + "\n";
}

}  // namespace berth
