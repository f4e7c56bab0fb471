// A policy for tests that are not about classes.
#pragma once

#include <cstdint>

#include "berth/kv.h"
#include "berth/policy.h"

namespace berth::test {

// One class that may have the whole pool and queues what does not fit.
inline Policy QueuingPolicy(const KvPoolShape& pool, std::int64_t max_running_sequences,
                            std::int64_t max_batched_tokens, std::int64_t max_queued_requests) {
  Policy policy;
  policy.classes.resize(1);
  policy.classes[0].name = "only";
  policy.classes[0].kv_guarantee_blocks = pool.num_blocks;
  policy.classes[0].slot_guarantee = max_running_sequences;
  policy.classes[0].max_queued_requests = max_queued_requests;
  policy.classes[0].max_wait = std::chrono::hours(1000);
  policy.tenants.resize(1);
  policy.tenants[0].name = "default";
  policy.max_running_sequences = max_running_sequences;
  policy.max_batched_tokens = max_batched_tokens;
  return policy;
}

}  // namespace berth::test
