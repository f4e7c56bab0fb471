// A backend in front of another that writes down when each step was submitted and when it was done.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "berth/backend.h"
#include "berth/clock.h"

namespace berth::bench {

struct StepTimes {
  std::int32_t rows = 0;
  std::int32_t tokens = 0;
  Duration gap{};   // from the end of the step before to this one's Submit; zero for the first
  Duration step{};  // from Submit to the moment at which Await would return at once
};

class TimedBackend final : public Backend {
 public:
  explicit TimedBackend(Backend* inner);

  const BackendInfo& info() const override { return inner_->info(); }
  absl::Status Submit(const StepPlan& plan) override;
  void NotifyWhenDone(std::function<void()> notify) override { notify_ = std::move(notify); }
  absl::Status Await(StepResult* result) override;

  // --- Any thread.
  // The next Submit waits until LetGo, so that what belongs together can be sent before any of it runs.
  void Hold();
  void LetGo();
  // What was written down since the last call.
  std::vector<StepTimes> TakeLog();

 private:
  Backend* const inner_;
  const SteadyClock clock_;
  std::function<void()> notify_;
  // By whoever ends the step, before the engine hears of it.
  TimePoint done_{};
  // The engine thread's.
  TimePoint submitted_{};
  StepTimes now_;
  bool first_ = true;

  std::mutex mutex_;
  std::condition_variable let_go_;
  bool held_ = false;           // guarded by mutex_
  std::vector<StepTimes> log_;  // guarded by mutex_
};

}  // namespace berth::bench
