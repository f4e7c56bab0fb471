#include "cli/live_policy.h"

#include <algorithm>

#include "admission/policy_check.h"
#include "config/carry_over.h"

namespace berth::cli {

absl::Status LivePolicy::Replace(const Policy& policy) {
  const std::lock_guard lock(mutex_);
  Policy next = CarryOver(latest_, policy);
  if (absl::Status valid = ValidatePolicy(next, pool_); !valid.ok()) return valid;
  latest_ = next;
  engine_->SetPolicy(std::move(next));
  return absl::OkStatus();
}

Policy LivePolicy::Carried(const Policy& policy) const {
  const std::lock_guard lock(mutex_);
  return CarryOver(latest_, policy);
}

absl::Status LivePolicy::Drain(const std::string& service_class) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(latest_.classes.begin(), latest_.classes.end(),
                                  [&](const ClassPolicy& c) { return c.name == service_class && !c.removed; });
  if (found == latest_.classes.end()) {
    return absl::NotFoundError("there is no class '" + service_class + "': 'berth status' lists them");
  }
  found->stop = ClassStop::kDrain;
  engine_->SetPolicy(latest_);
  return absl::OkStatus();
}

}  // namespace berth::cli
