// From an operator's shares and words to the policy for one pool.
#pragma once

#include <cstdint>

#include "berth/kv.h"
#include "berth/policy.h"
#include "config/server_config.h"

namespace berth {

// Shares become whole blocks here and nowhere else: guarantees are rounded down, so that they never exceed the pool,
// and ceilings up, to the pool at most. Limits in tokens are cut to the context. Slot guarantees stay 0: what a class
// gets of the sequences that may run follows from its blocks (DefaultSlotGuarantee).
Policy ResolvePolicy(const ServerConfig& config, const KvPoolShape& pool, std::int32_t max_context_tokens);

}  // namespace berth
