#include "cli/live_policy.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "admission/policy_check.h"
#include "config/carry_over.h"

namespace berth::cli {

namespace {

constexpr Duration kMostAdoptionTime = std::chrono::seconds(5);

}  // namespace

void LivePolicy::GiveLocked() {
  const std::shared_ptr<const Policy> before = engine_->policy();
  engine_->SetPolicy(latest_);
  const auto end = std::chrono::steady_clock::now() + kMostAdoptionTime;
  while (engine_->policy() == before && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

absl::Status LivePolicy::Replace(const Policy& policy) {
  const std::lock_guard lock(mutex_);
  Policy next = CarryOver(latest_, policy);
  if (absl::Status valid = ValidatePolicy(next, pool_); !valid.ok()) return valid;
  latest_ = std::move(next);
  GiveLocked();
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
  GiveLocked();
  return absl::OkStatus();
}

}  // namespace berth::cli
