// How much is going on, as the engine's thread last wrote it down.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace berth {

struct ClassLoad {
  std::int64_t running_requests = 0;
  std::int64_t queued_requests = 0;
  std::int64_t parked_requests = 0;
};

struct EngineLoad {
  std::int64_t running_requests = 0;
  std::int64_t queued_requests = 0;
  std::int64_t parked_requests = 0;  // preempted, waiting to go on
  std::int64_t held_blocks = 0;
  std::int64_t reserved_blocks = 0;  // held ones, and those that running requests may still take
  std::vector<ClassLoad> classes;    // by ClassId
};

// Thread-safe. Writing allocates nothing as long as there are no more classes than before.
class LoadBoard {
 public:
  void Write(const EngineLoad& load) {
    const std::lock_guard lock(mutex_);
    load_ = load;
  }
  EngineLoad Read() const {
    const std::lock_guard lock(mutex_);
    return load_;
  }

 private:
  mutable std::mutex mutex_;
  EngineLoad load_;  // guarded by mutex_
};

}  // namespace berth
