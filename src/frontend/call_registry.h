// The Generate and GenerateStream calls that are open, for the server's housekeeping.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "berth/clock.h"
#include "frontend/call.h"

namespace berth {

// Thread-safe.
class CallRegistry {
 public:
  void Add(std::shared_ptr<Call> call);
  void Remove(const std::shared_ptr<Call>& call);

  // Ends the calls whose oldest message is older than `timeout`.
  void AbortStuck(TimePoint now, Duration timeout);

  // Returns when no call is open, or when `timeout` has passed.
  void WaitUntilEmpty(Duration timeout);

 private:
  std::mutex mutex_;
  std::condition_variable emptied_;
  std::unordered_set<std::shared_ptr<Call>> calls_;  // guarded by mutex_
};

}  // namespace berth
