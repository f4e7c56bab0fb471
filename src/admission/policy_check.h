// Whether a policy can be kept by a given pool. A policy is taken whole or refused whole.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "berth/kv.h"
#include "berth/policy.h"

namespace berth {

// OK, or INVALID_ARGUMENT with one line naming the keys at fault, the limit and the remedy.
absl::Status ValidatePolicy(const Policy& policy, const KvPoolShape& pool);

// The slots a class is guaranteed unless the policy says otherwise: its share of the pool, at least one if it has any.
std::int64_t DefaultSlotGuarantee(std::int64_t kv_guarantee_blocks, std::int64_t pool_blocks,
                                  std::int64_t max_running_sequences);

}  // namespace berth
