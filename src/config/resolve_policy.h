// Settings and a pool, resolved to the policy that admission keeps.
#pragma once

#include <cstdint>
#include <optional>

#include "berth/kv.h"
#include "berth/policy.h"
#include "config/diagnostics.h"
#include "config/server_config.h"

namespace berth {

// What a policy is resolved for. 0 = not known.
struct PolicyContext {
  KvPoolShape pool;
  std::int64_t block_bytes = 0;     // without it, quantities in bytes are errors
  std::int64_t context_tokens = 0;  // prompt and output that the model holds
};

// Classes and tenants in the order of the settings, so that a ClassId is an index into `config.classes`; limits on a
// sequence's tokens are cut to the context; without a class of the default class's name the first one is it. Nothing
// where the pool cannot keep the policy; what can never work, or is promised for nobody, is a warning. REQUIRES:
// CheckSettings found no error.
std::optional<Policy> ResolvePolicy(const ServerConfig& config, const PolicyContext& context, Diagnostics* diagnostics);

}  // namespace berth
