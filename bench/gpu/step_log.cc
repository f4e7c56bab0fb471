#include "step_log.h"

#include <utility>

namespace berth::bench {

StepLog::StepLog(Backend* inner) : inner_(inner) {
  inner_->NotifyWhenDone([this] {
    {
      const std::lock_guard lock(mutex_);
      if (untold_ > 0) {
        --untold_;
      } else {
        done_.push_back(clock_.Now());
      }
    }
    if (notify_) notify_();
  });
}

absl::Status StepLog::Submit(const StepPlan& plan) {
  LoggedStep step;
  step.rows = static_cast<std::int32_t>(plan.rows.size());
  step.tokens = static_cast<std::int32_t>(plan.token_ids.size());
  for (const StepRow& row : plan.rows) step.kv_tokens += row.first_position + row.num_tokens;
  {
    const std::lock_guard lock(mutex_);
    in_flight_.push_back(step);
  }
  absl::Status status = inner_->Submit(plan);
  if (status.ok()) return status;
  const std::lock_guard lock(mutex_);
  in_flight_.pop_back();
  if (fault_.ok()) fault_ = status;
  return status;
}

absl::Status StepLog::Await(StepResult* result) {
  absl::Status status = inner_->Await(result);
  const std::lock_guard lock(mutex_);
  LoggedStep step = in_flight_.front();
  in_flight_.pop_front();
  step.busy = result->busy;
  TimePoint done = clock_.Now();
  if (done_.empty()) {
    ++untold_;
  } else {
    done = done_.front();
    done_.pop_front();
  }
  step.interval = done - last_done_;
  last_done_ = done;
  if (status.ok()) log_.push_back(step);
  if (fault_.ok()) fault_ = status;
  return status;
}

absl::Status StepLog::fault() {
  const std::lock_guard lock(mutex_);
  return fault_;
}

std::vector<LoggedStep> StepLog::Take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(log_, {});
}

}  // namespace berth::bench
