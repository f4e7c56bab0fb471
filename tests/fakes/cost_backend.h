// A backend that computes nothing and says how long a step takes: for simulations in virtual time whose outputs nobody
// reads.
#pragma once

#include <chrono>
#include <functional>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "berth/backend.h"

namespace berth::test {

// 20 ms a step and 5 us a token: a machine bound by reading its weights.
class CostBackend final : public Backend {
 public:
  explicit CostBackend(const KvPoolShape& pool) { info_.pool = pool; }
  const BackendInfo& info() const override { return info_; }
  absl::Status Submit(const StepPlan& plan) override {
    plan_ = &plan;
    if (notify_) notify_();
    return absl::OkStatus();
  }
  void NotifyWhenDone(std::function<void()> notify) override { notify_ = std::move(notify); }
  absl::Status Await(StepResult* result) override {
    result->step = plan_->step;
    result->logits.assign(plan_->logit_rows.size(), LogitResult{1, 0.0F, 0, 0});
    result->busy = std::chrono::milliseconds(20) + std::chrono::microseconds(5) * std::ssize(plan_->token_ids);
    return absl::OkStatus();
  }

 private:
  BackendInfo info_;
  std::function<void()> notify_;
  const StepPlan* plan_ = nullptr;
};

}  // namespace berth::test
