#include "random_policy.h"

#include <algorithm>
#include <string>
#include <vector>

namespace berth::simulation {
namespace {

std::vector<std::int64_t> Split(std::int64_t total, std::size_t parts, Draw* draw) {
  std::vector<std::int64_t> weights(parts);
  std::int64_t sum = draw->OneOf({0, 0, 1, 2, 4});
  for (std::int64_t& w : weights) sum += w = draw->OneOf({0, 1, 1, 2, 3});
  for (std::int64_t& w : weights) w = sum > 0 ? total * w / sum : 0;
  return weights;
}

DeadlineRequirement AnyRequirement(Draw* draw) {
  if (draw->Chance(0.4)) return DeadlineRequirement::kFirstToken;
  return draw->Chance(0.5) ? DeadlineRequirement::kUsefulOutput : DeadlineRequirement::kFullOutput;
}

void LimitClass(std::int64_t pool_tokens, ClassPolicy* c, Draw* draw) {
  if (draw->Chance(0.3)) c->max_sequence_tokens = draw->Between(2, pool_tokens);
  if (draw->Chance(0.3)) c->max_output_tokens = draw->Between(1, pool_tokens);
  if (draw->Chance(0.3)) c->max_queued_tokens = draw->Between(1, 2 * pool_tokens);
}

void LimitTenants(const KvPoolShape& pool, bool quotas, bool limits, Policy* policy, Draw* draw) {
  const std::int64_t pool_tokens = pool.num_blocks * pool.block_tokens;
  if (quotas) {
    policy->tenants[0].max_kv_blocks = std::max<std::int64_t>(1, draw->Between(pool.num_blocks / 3, pool.num_blocks));
    policy->tenants[2].max_concurrent_requests = draw->Between(1, 6);
    for (TenantPolicy& t : policy->tenants) {
      if (!draw->Chance(0.4)) continue;
      t.burst_tokens = static_cast<double>(draw->Between(1, 3 * pool_tokens));
      // From one token in three plans to thirty a plan.
      t.tokens_per_minute = 6000.0 * static_cast<double>(draw->OneOf({1, 3, 10, 90})) / 3.0;
    }
  }
  if (limits && draw->Chance(0.3)) {
    std::vector<ClassId> allowed;
    for (ClassId c = 0; c < std::ssize(policy->classes); ++c) {
      if (draw->Chance(0.7)) allowed.push_back(c);
    }
    policy->tenants[1].classes = allowed;
  }
}

}  // namespace

Policy MakePolicy(const KvPoolShape& pool, const PolicyTraits& traits, Draw* draw) {
  Policy policy;
  policy.max_running_sequences = traits.slots;
  policy.max_batched_tokens = traits.slots + draw->OneOf({0, 4, 16, 64});
  const std::vector<std::int64_t> blocks = Split(pool.num_blocks, traits.num_classes, draw);
  const std::vector<std::int64_t> slots = Split(traits.slots, traits.num_classes, draw);
  for (std::size_t i = 0; i < traits.num_classes; ++i) {
    ClassPolicy c;
    c.name = "class" + std::to_string(i);
    c.priority = static_cast<std::int32_t>(draw->OneOf({1, 5, 10}));
    c.kv_guarantee_blocks = blocks[i];
    c.kv_borrowing_limit_blocks = draw->OneOf({0, pool.num_blocks / 4, pool.num_blocks / 2, pool.num_blocks});
    c.kv_lending_limit_blocks = draw->OneOf({kUnlimited, kUnlimited, kUnlimited, 0, blocks[i] / 2});
    c.slot_guarantee = slots[i];
    c.preemptible = draw->Chance(0.6);
    c.max_preemptions = static_cast<std::int32_t>(draw->OneOf({1, 1, 2, 3}));
    c.max_queued_requests = draw->OneOf({2, 6, 20});
    c.max_wait = Plans(draw->OneOf({4, 10, 30, 100}));
    c.overload = draw->Chance(0.1) ? Overload::kReject : draw->Chance(0.2) ? Overload::kShedLowest : Overload::kQueue;
    if (draw->Chance(0.2)) c.inter_token_slo = Plans(1);
    if (draw->Chance(0.2)) c.prefill_min_share = 0.2;
    c.require = AnyRequirement(draw);
    c.useful_tokens = draw->OneOf({1, 4, 16});
    if (traits.limits) LimitClass(pool.num_blocks * pool.block_tokens, &c, draw);
    policy.classes.push_back(c);
  }
  policy.tenants.resize(3);
  for (std::size_t t = 0; t < 3; ++t) policy.tenants[t].name = "tenant" + std::to_string(t);
  policy.tenants[1].weight = static_cast<double>(draw->OneOf({1, 1, 4}));
  LimitTenants(pool, traits.quotas, traits.limits, &policy, draw);
  if (draw->Chance(0.2)) policy.max_queued_requests = draw->Between(3, 20);
  if (draw->Chance(0.1)) policy.max_queued_tokens = draw->Between(1, 2 * pool.num_blocks * pool.block_tokens);
  return policy;
}

Policy MakePolicyChange(const KvPoolShape& pool, const PolicyTraits& traits, const Policy& before, Draw* draw) {
  PolicyTraits changed = traits;
  changed.num_classes = before.classes.size() + (draw->Chance(0.2) ? 1 : 0);
  if (draw->Chance(0.3)) changed.slots = draw->Between(1, 12);
  Policy policy = MakePolicy(pool, changed, draw);
  if (draw->Chance(0.5)) {
    for (std::size_t c = 0; c < before.classes.size(); ++c) {
      policy.classes[c].preemptible = before.classes[c].preemptible;
    }
  }
  if (draw->Chance(0.4)) policy.tenants = before.tenants;
  while (policy.tenants.size() < before.tenants.size() || draw->Chance(0.15)) {
    TenantPolicy newcomer;
    newcomer.name = "tenant" + std::to_string(policy.tenants.size());
    policy.tenants.push_back(newcomer);
  }
  for (ClassPolicy& c : policy.classes) {
    if (draw->Chance(0.15)) c.stop = draw->Chance(0.5) ? ClassStop::kHold : ClassStop::kDrain;
    if (!draw->Chance(0.07) || &c == &policy.classes.front()) continue;  // the default class stays
    c.removed = true;
    c.kv_guarantee_blocks = c.kv_borrowing_limit_blocks = c.slot_guarantee = 0;
  }
  // The default class is there, come what may.
  auto kept = std::ranges::find(policy.classes, false, &ClassPolicy::removed);
  if (kept == policy.classes.end()) kept = policy.classes.begin();
  kept->removed = false;
  policy.default_class = static_cast<ClassId>(kept - policy.classes.begin());
  return policy;
}

}  // namespace berth::simulation
