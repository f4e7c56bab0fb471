#include "timed_backend.h"

#include <algorithm>
#include <utility>

namespace berth::bench {

TimedBackend::TimedBackend(Backend* inner) : inner_(inner) {
  inner_->NotifyWhenDone([this] {
    {
      const std::lock_guard lock(mutex_);
      done_.push_back(clock_.Now());
    }
    if (notify_) notify_();
  });
}

void TimedBackend::Hold() {
  const std::lock_guard lock(mutex_);
  held_ = true;
}

void TimedBackend::LetGo() {
  const std::lock_guard lock(mutex_);
  held_ = false;
  let_go_.notify_all();
}

absl::Status TimedBackend::Submit(const StepPlan& plan) {
  {
    std::unique_lock lock(mutex_);
    let_go_.wait(lock, [this] { return !held_; });
  }
  StepTimes times;
  times.rows = static_cast<std::int32_t>(plan.rows.size());
  times.tokens = static_cast<std::int32_t>(plan.token_ids.size());
  in_flight_.push_back({clock_.Now(), times});
  absl::Status status = inner_->Submit(plan);
  if (!status.ok()) in_flight_.pop_back();
  return status;
}

absl::Status TimedBackend::Await(StepResult* result) {
  absl::Status status = inner_->Await(result);
  Submitted step = in_flight_.front();
  in_flight_.pop_front();
  const std::lock_guard lock(mutex_);
  const TimePoint before = last_done_.value_or(step.at);
  step.times.gap = std::max(Duration::zero(), step.at - before);
  step.times.step = done_.front() - std::max(step.at, before);
  last_done_ = done_.front();
  done_.pop_front();
  log_.push_back(step.times);
  return status;
}

std::vector<StepTimes> TimedBackend::TakeLog() {
  const std::lock_guard lock(mutex_);
  return std::exchange(log_, {});
}

}  // namespace berth::bench
