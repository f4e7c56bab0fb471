// A backend in front of another that writes down when each step was submitted and when it was done.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "berth/backend.h"
#include "berth/clock.h"

namespace berth::bench {

struct StepTimes {
  std::int32_t rows = 0;
  std::int32_t tokens = 0;
  // From the end of the step before to this one's Submit; zero for the first, and where it was submitted ahead.
  Duration gap{};
  // From Submit, or the end of the step before where that is later, to the moment at which Await would return at once.
  Duration step{};
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
  struct Submitted {
    TimePoint at;
    StepTimes times;
  };
  // The engine thread's.
  std::deque<Submitted> in_flight_;
  std::optional<TimePoint> last_done_;

  std::mutex mutex_;
  std::condition_variable let_go_;
  // Guarded by mutex_:
  bool held_ = false;
  std::deque<TimePoint> done_;  // when each step was that is not awaited yet
  std::vector<StepTimes> log_;
};

}  // namespace berth::bench
