// What the engine's thread is at, for whoever judges its health: never waits for that thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "berth/clock.h"

namespace berth {

// All times are the engine's clock's.
struct EngineSigns {
  bool faulted = false;                         // the backend's last step failed
  std::optional<TimePoint> in_turn_since = {};  // absent: it waits for mail or for the backend
  std::optional<TimePoint> in_step_since = {};  // absent: the backend has nothing to do
  Duration predicted_step{};                    // of that step; 0 where nothing is known
  // By ClassId: when the class last got on. Something of it was computed, started or ended, its first request came
  // while it had none, or a policy changed.
  std::vector<TimePoint> progress = {};
};

// Thread-safe. The engine's thread writes, a few atomic stores a turn; any other reads.
class Heartbeat {
 public:
  // --- The engine's thread.
  void StartTurn(TimePoint now) { Set(&turn_, now); }
  void EndTurn() { turn_ = kNone; }
  void StartStep(TimePoint now, Duration predicted) {
    predicted_ = predicted.count();
    Set(&step_, now);
  }
  void EndStep() { step_ = kNone; }
  // The class got on. Told to the others by Publish.
  void NoteProgress(std::size_t service_class, TimePoint now) {
    progress_[service_class] = now;
    changed_ = true;
  }
  void NoteProgressOfAll(std::size_t classes, TimePoint now) {
    progress_.assign(classes, now);
    changed_ = true;
  }
  void Publish() {
    if (!std::exchange(changed_, false)) return;
    const std::lock_guard lock(mutex_);
    published_.assign(progress_.begin(), progress_.end());
  }

  // --- Any thread. `faulted` is the loop's to add.
  EngineSigns Read() const {
    EngineSigns signs;
    signs.in_turn_since = Get(turn_);
    signs.predicted_step = Duration(predicted_.load());
    signs.in_step_since = Get(step_);
    const std::lock_guard lock(mutex_);
    signs.progress = published_;
    return signs;
  }

 private:
  using Atomic = std::atomic<Duration::rep>;
  static constexpr Duration::rep kNone = -1;

  static void Set(Atomic* at, TimePoint now) { *at = std::max<Duration::rep>(0, now.time_since_epoch().count()); }
  static std::optional<TimePoint> Get(const Atomic& at) {
    const Duration::rep since = at;
    return since == kNone ? std::nullopt : std::optional(TimePoint(Duration(since)));
  }

  Atomic turn_ = kNone;
  Atomic step_ = kNone;
  Atomic predicted_ = 0;
  std::vector<TimePoint> progress_;  // the engine's thread's
  bool changed_ = false;             // likewise
  mutable std::mutex mutex_;
  std::vector<TimePoint> published_;  // guarded by mutex_
};

}  // namespace berth
