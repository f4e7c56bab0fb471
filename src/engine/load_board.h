// How much is going on, as the engine's thread last wrote it down.
#pragma once

#include <mutex>

#include "berth/metrics.h"

namespace berth {

// Thread-safe. Writing allocates nothing as long as there are no more classes and queues than before.
class LoadBoard {
 public:
  void Write(const LoadSnapshot& load) {
    const std::lock_guard lock(mutex_);
    load_ = load;
  }
  LoadSnapshot Read() const {
    const std::lock_guard lock(mutex_);
    return load_;
  }

 private:
  mutable std::mutex mutex_;
  LoadSnapshot load_;  // guarded by mutex_
};

}  // namespace berth
