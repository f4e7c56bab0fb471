// Every key of the policy file, once: its name, what it may hold, whether a reload may change it, the field it sets and
// the sentence that explains it. The parser, the JSON Schema and the comparison of two files all read this table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "config/field.h"
#include "config/server_config.h"

namespace berth {

// Whether a reload may change the key, or only a restart.
enum class Effect : std::uint8_t { kLive, kRestart };

const char* EffectName(Effect effect);

// Where a key's field is: of the whole, of a class or of a tenant.
struct Scope {
  ServerConfig* config = nullptr;
  ClassSettings* service_class = nullptr;
  TenantSettings* tenant = nullptr;
};

struct Key {
  std::string_view path;  // "classes.*.queue.max_wait": * is the name of a class or tenant
  Effect effect = Effect::kLive;
  Rule rule;
  Field (*field)(const Scope& scope) = nullptr;
  std::string_view help;
};

// In the order in which a file is written. `version` is not among them: it is 1.
std::span<const Key> PolicyKeys();
// Null where no key has this path.
const Key* FindKey(std::string_view path);
// Some key lies below the path.
bool IsSection(std::string_view path);
// "classes.batch.priority" for "classes.*.priority" and "batch".
std::string NamedPath(std::string_view path, std::string_view name);

// Why a key that users may expect is not served; empty where there is no such word.
std::string_view UnservedMessage(std::string_view path);

}  // namespace berth
