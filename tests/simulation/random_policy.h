// Random policies, and random changes of a policy while requests live.
#pragma once

#include <cstddef>
#include <cstdint>

#include "berth/clock.h"
#include "berth/kv.h"
#include "berth/policy.h"
#include "draw.h"

namespace berth::simulation {

// One plan of the simulation is 10 ms.
inline Duration Plans(std::int64_t plans) { return std::chrono::milliseconds(10 * plans); }

struct PolicyTraits {
  std::size_t num_classes = 1;
  std::int64_t slots = 1;
  bool quotas = false;  // tenants are bounded in blocks, requests and tokens
  bool limits = false;  // classes are bounded in tokens, tenants in classes
};

// Valid for the pool: three tenants, and a value of every key that an operator may set.
Policy MakePolicy(const KvPoolShape& pool, const PolicyTraits& traits, Draw* draw);

// A later policy for the same server: classes may be added, put on hold, drained or removed, tenants may be added.
// `before` = the policy that it follows.
Policy MakePolicyChange(const KvPoolShape& pool, const PolicyTraits& traits, const Policy& before, Draw* draw);

}  // namespace berth::simulation
