// A backend without a model: every step takes the same time, or none at all.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "berth/backend.h"
#include "berth/clock.h"

namespace berth::bench {

inline constexpr std::int32_t kFakeVocabulary = 32000;

// With a step time of zero a step is done within Submit; otherwise on a thread of its own, when its time is over.
class PacedBackend final : public Backend {
 public:
  PacedBackend(const KvPoolShape& pool, std::int32_t max_context_tokens, Duration step_time);
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
  std::int64_t step_ = 0;
  std::vector<LogitResult> answers_;

  std::mutex mutex_;
  std::condition_variable changed_;
  TimePoint due_ = kNoDeadline;  // guarded by mutex_; of the step in flight
  bool stopped_ = false;         // guarded by mutex_
  std::thread thread_;
};

}  // namespace berth::bench
