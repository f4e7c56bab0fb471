#include "timed_backend.h"

#include <utility>

namespace berth::bench {

TimedBackend::TimedBackend(Backend* inner) : inner_(inner) {
  inner_->NotifyWhenDone([this] {
    done_ = clock_.Now();
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
  submitted_ = clock_.Now();
  now_ = {.rows = static_cast<std::int32_t>(plan.rows.size()),
          .tokens = static_cast<std::int32_t>(plan.token_ids.size()),
          .gap = first_ ? Duration::zero() : submitted_ - done_,
          .step = {}};
  first_ = false;
  return inner_->Submit(plan);
}

absl::Status TimedBackend::Await(StepResult* result) {
  absl::Status status = inner_->Await(result);
  now_.step = done_ - submitted_;
  const std::lock_guard lock(mutex_);
  log_.push_back(now_);
  return status;
}

std::vector<StepTimes> TimedBackend::TakeLog() {
  const std::lock_guard lock(mutex_);
  return std::exchange(log_, {});
}

}  // namespace berth::bench
