// A backend in front of another that writes down, of every step, how long the device worked on it and when it was done.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "berth/backend.h"
#include "berth/clock.h"

namespace berth::bench {

struct LoggedStep {
  std::int32_t rows = 0;
  std::int32_t tokens = 0;
  std::int64_t kv_tokens = 0;  // stored when it was done, of all its rows
  Duration busy{};             // of the device
  Duration interval{};         // from the end of the step before to its own
};

class StepLog final : public Backend {
 public:
  explicit StepLog(Backend* inner);

  const BackendInfo& info() const override { return inner_->info(); }
  absl::Status Submit(const StepPlan& plan) override;
  void NotifyWhenDone(std::function<void()> notify) override { notify_ = std::move(notify); }
  absl::Status Await(StepResult* result) override;

  // What was written down since the last call. Any thread.
  std::vector<LoggedStep> Take();
  // The first error of a step; OK where there was none. Any thread.
  absl::Status fault();

 private:
  Backend* const inner_;
  const SteadyClock clock_;
  std::function<void()> notify_;

  std::mutex mutex_;
  std::deque<LoggedStep> in_flight_;  // guarded by mutex_
  std::deque<TimePoint> done_;        // guarded by mutex_: ends that Await has not taken yet
  std::int64_t untold_ = 0;           // guarded by mutex_: steps that Await took before it was told of them
  TimePoint last_done_{};             // guarded by mutex_
  std::vector<LoggedStep> log_;       // guarded by mutex_
  absl::Status fault_;                // guarded by mutex_
};

}  // namespace berth::bench
