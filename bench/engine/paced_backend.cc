#include "paced_backend.h"

#include <utility>

namespace berth::bench {

PacedBackend::PacedBackend(const KvPoolShape& pool, std::int32_t max_context_tokens, Duration step_time,
                           std::int32_t max_steps_in_flight)
    : step_time_(step_time) {
  info_.name = "fake";
  info_.pool = pool;
  info_.vocab_size = kFakeVocabulary;
  info_.max_context_tokens = max_context_tokens;
  info_.max_step_tokens = 1 << 16;
  info_.max_steps_in_flight = max_steps_in_flight;
  if (step_time_ > Duration::zero()) thread_ = std::thread([this] { Pace(); });
}

PacedBackend::~PacedBackend() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

absl::Status PacedBackend::Submit(const StepPlan& plan) {
  Step& step = in_flight_.emplace_back(Step{plan.step, std::exchange(spare_, {})});
  step.answers.clear();
  for (const LogitRow& row : plan.logit_rows) {
    const auto position = static_cast<std::int64_t>(row.sampling.history.size());
    const TokenId drawn = static_cast<TokenId>((position * 7919 + row.token_index) % kFakeVocabulary);
    step.answers.push_back({.token = row.target == kNoToken ? drawn : row.target});
  }
  if (step_time_ == Duration::zero()) {
    {
      const std::lock_guard lock(mutex_);
      ++done_;
    }
    if (notify_) notify_();
    return absl::OkStatus();
  }
  const std::lock_guard lock(mutex_);
  if (waiting_++ == 0) due_ = SteadyClock().Now() + step_time_;
  changed_.notify_all();
  return absl::OkStatus();
}

absl::Status PacedBackend::Await(StepResult* result) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_ > 0; });
    --done_;
  }
  Step& step = in_flight_.front();
  result->step = step.number;
  std::swap(result->logits, step.answers);
  spare_ = std::move(step.answers);
  result->top.clear();
  result->busy = step_time_;
  in_flight_.pop_front();
  return absl::OkStatus();
}

void PacedBackend::Pace() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    changed_.wait(lock, [this] { return stopped_ || waiting_ > 0; });
    changed_.wait_until(lock, due_, [this] { return stopped_; });
    if (stopped_) return;
    ++done_;
    due_ = --waiting_ > 0 ? SteadyClock().Now() + step_time_ : kNoDeadline;
    changed_.notify_all();
    // Under the lock, so that Await, and with it whoever hears of this, does not run ahead of the call.
    if (notify_) notify_();
  }
}

}  // namespace berth::bench
