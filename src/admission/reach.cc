#include "admission/reach.h"

#include <algorithm>

namespace berth {

std::int64_t ReachBlocks(const Policy& policy, ClassId c, std::int64_t pool_blocks) {
  const ClassPolicy& own = policy.classes[static_cast<std::size_t>(c)];
  std::int64_t reach = pool_blocks;
  for (const ClassPolicy& other : policy.classes) {
    if (&other == &own) continue;
    // What can be taken back may be what others leave idle and lend; the rest only what is guaranteed to nobody.
    reach -= own.preemptible ? std::max<std::int64_t>(0, other.kv_guarantee_blocks - other.kv_lending_limit_blocks)
                             : other.kv_guarantee_blocks;
  }
  return std::min(own.ceiling_blocks(), reach);
}

std::int64_t ReachSlots(const Policy& policy, ClassId c) {
  const ClassPolicy& own = policy.classes[static_cast<std::size_t>(c)];
  if (own.preemptible) return policy.max_running_sequences;
  std::int64_t others = 0;
  for (const ClassPolicy& other : policy.classes) others += &other == &own ? 0 : other.slot_guarantee;
  return std::max(own.slot_guarantee, policy.max_running_sequences - others);
}

}  // namespace berth
