// What a policy leaves within a class's reach.
#pragma once

#include <cstdint>

#include "berth/policy.h"
#include "berth/units.h"

namespace berth {

// The most blocks and the most sequences that a single request of the class may ever have. REQUIRES: the policy can be
// kept by the pool (ValidatePolicy).
std::int64_t ReachBlocks(const Policy& policy, ClassId c, std::int64_t pool_blocks);
std::int64_t ReachSlots(const Policy& policy, ClassId c);

}  // namespace berth
