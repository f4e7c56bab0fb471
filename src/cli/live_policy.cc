#include "cli/live_policy.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "admission/policy_check.h"
#include "config/carry_over.h"

namespace berth::cli {
namespace {

constexpr Duration kMostAdoptionTime = std::chrono::seconds(5);

}  // namespace

Policy LivePolicy::CarriedLocked(const Policy& policy) const { return CarryOver(callers_->Named(latest_), policy); }

Policy LivePolicy::Carried(const Policy& policy) const {
  const std::lock_guard lock(mutex_);
  return CarriedLocked(policy);
}

absl::Status LivePolicy::Replace(const Policy& policy, const std::function<void(const Policy& next)>& tell) {
  const std::lock_guard lock(mutex_);
  Policy next = CarriedLocked(policy);
  if (absl::Status valid = ValidatePolicy(next, pool_); !valid.ok()) return valid;
  tell(next);
  latest_ = std::move(next);
  GiveLocked();
  return absl::OkStatus();
}

absl::Status LivePolicy::Drain(const std::string& service_class) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(latest_.classes.begin(), latest_.classes.end(),
                                  [&](const ClassPolicy& c) { return c.name == service_class && !c.removed; });
  if (found == latest_.classes.end()) {
    return absl::NotFoundError("there is no class '" + service_class + "': 'berth status' lists them");
  }
  found->stop = ClassStop::kDrain;
  GiveLocked();
  return absl::OkStatus();
}

void LivePolicy::GiveLocked() {
  callers_->SetPolicy(latest_);
  const std::shared_ptr<const Policy> before = engine_->policy();
  engine_->SetPolicy(latest_);
  const auto end = std::chrono::steady_clock::now() + kMostAdoptionTime;
  while (engine_->policy() == before && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace berth::cli
