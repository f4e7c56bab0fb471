// A backend without a model: every step takes the same time, or none at all.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "berth/backend.h"
#include "berth/clock.h"

namespace berth::bench {

inline constexpr std::int32_t kFakeVocabulary = 32000;

// With a step time of zero a step is done within Submit; otherwise on a thread of its own, when its time is over. Steps
// run one after the other.
class PacedBackend final : public Backend {
 public:
  PacedBackend(const KvPoolShape& pool, std::int32_t max_context_tokens, Duration step_time,
               std::int32_t max_steps_in_flight = 1);
  ~PacedBackend() override;

  const BackendInfo& info() const override { return info_; }
  absl::Status Submit(const StepPlan& plan) override;
  void NotifyWhenDone(std::function<void()> notify) override { notify_ = std::move(notify); }
  absl::Status Await(StepResult* result) override;

 private:
  void Pace();

  BackendInfo info_;
  const Duration step_time_;
  std::function<void()> notify_;
  // The engine thread's.
  struct Step {
    std::int64_t number = 0;
    std::vector<LogitResult> answers;
  };
  std::deque<Step> in_flight_;
  std::vector<LogitResult> spare_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::int64_t waiting_ = 0;     // steps that are not done
  std::int64_t done_ = 0;        // and those that are and were not awaited
  TimePoint due_ = kNoDeadline;  // of the first that is not done
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace berth::bench
