#include "admission/policy_check.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"

namespace berth {
namespace {

absl::Status ValidateClass(const ClassPolicy& c) {
  const std::string key = absl::StrCat("classes.", c.name, ".");
  const auto at_least = [&](const char* name, std::int64_t value, std::int64_t least) {
    if (value >= least) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(key, name, " is ", value, ", must be at least ", least));
  };
  for (const absl::Status& status :
       {at_least("kv_guarantee", c.kv_guarantee_blocks, 0),
        at_least("kv_borrowing_limit", c.kv_borrowing_limit_blocks, 0),
        at_least("kv_lending_limit", c.kv_lending_limit_blocks, 0), at_least("slot_guarantee", c.slot_guarantee, 0),
        at_least("max_preemptions", c.max_preemptions, 1), at_least("max_sequence_tokens", c.max_sequence_tokens, 2),
        at_least("max_output_tokens", c.max_output_tokens, 1), at_least("queue.max_requests", c.max_queued_requests, 1),
        at_least("queue.max_tokens", c.max_queued_tokens, 1), at_least("queue.max_wait", c.max_wait.count(), 1),
        at_least("deadline.useful_tokens", c.useful_tokens, 1)}) {
    if (!status.ok()) return status;
  }
  if (!(c.prefill_min_share >= 0.0 && c.prefill_min_share <= 1.0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("scheduler.prefill_min_share.", c.name, " must be between 0% and 100%"));
  }
  return absl::OkStatus();
}

absl::Status ValidateTenant(const TenantPolicy& t, std::size_t num_classes) {
  const std::string key = absl::StrCat("tenants.", t.name, ".");
  if (!(t.weight > 0.0 && t.weight <= 1e6)) {
    return absl::InvalidArgumentError(absl::StrCat(key, "weight must be above 0 and at most 1000000"));
  }
  if (t.max_concurrent_requests < 1) {
    return absl::InvalidArgumentError(absl::StrCat(key, "max_concurrent_requests must be at least 1"));
  }
  if (t.max_kv_blocks < 1) return absl::InvalidArgumentError(absl::StrCat(key, "max_kv must be at least one block"));
  if (t.tokens_per_minute.has_value() && !(*t.tokens_per_minute > 0.0 && t.burst_tokens >= 1.0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, "tokens_per_minute must be above 0 and burst_tokens at least 1"));
  }
  if (t.classes.has_value()) {
    for (const ClassId c : *t.classes) {
      if (c < 0 || static_cast<std::size_t>(c) >= num_classes) {
        return absl::InvalidArgumentError(absl::StrCat(key, "classes names a class that does not exist"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidatePolicy(const Policy& policy, const KvPoolShape& pool) {
  if (policy.classes.empty()) return absl::InvalidArgumentError("classes: at least one class is needed");
  if (policy.tenants.empty()) return absl::InvalidArgumentError("tenants: at least one tenant is needed");
  if (policy.max_running_sequences < 1 || policy.max_batched_tokens < policy.max_running_sequences) {
    return absl::InvalidArgumentError(
        absl::StrCat("scheduler.max_batched_tokens is ", policy.max_batched_tokens,
                     ", must be at least scheduler.max_running_sequences (", policy.max_running_sequences,
                     ", itself at least 1), so that every running sequence can decode in each step"));
  }
  std::set<std::string> names;
  std::int64_t guaranteed = 0;
  std::int64_t slots = 0;
  double shares = 0.0;
  for (const ClassPolicy& c : policy.classes) {
    if (absl::Status status = ValidateClass(c); !status.ok()) return status;
    if (!c.removed && !names.insert(c.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("classes.", c.name, " is there twice"));
    }
    if (c.removed && c.ceiling_blocks() + c.slot_guarantee > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("classes.", c.name, " is removed and can neither keep a guarantee nor borrow"));
    }
    guaranteed += c.kv_guarantee_blocks;
    slots += c.slot_guarantee;
    shares += c.prefill_min_share;
  }
  if (guaranteed > pool.num_blocks) {
    return absl::InvalidArgumentError(absl::StrCat("classes.*.kv_guarantee add up to ", guaranteed,
                                                   " blocks, the pool has ", pool.num_blocks, "; lower them"));
  }
  if (slots > policy.max_running_sequences) {
    return absl::InvalidArgumentError(absl::StrCat("classes.*.slot_guarantee add up to ", slots,
                                                   ", scheduler.max_running_sequences is ",
                                                   policy.max_running_sequences, "; lower them or raise it"));
  }
  if (shares > 1.0) return absl::InvalidArgumentError("scheduler.prefill_min_share.* add up to more than 100%");
  for (const TenantPolicy& t : policy.tenants) {
    if (absl::Status status = ValidateTenant(t, policy.classes.size()); !status.ok()) return status;
  }
  return absl::OkStatus();
}

std::int64_t DefaultSlotGuarantee(std::int64_t kv_guarantee_blocks, std::int64_t pool_blocks,
                                  std::int64_t max_running_sequences) {
  if (kv_guarantee_blocks <= 0 || pool_blocks <= 0) return 0;
  return std::max<std::int64_t>(1, max_running_sequences * kv_guarantee_blocks / pool_blocks);
}

}  // namespace berth
