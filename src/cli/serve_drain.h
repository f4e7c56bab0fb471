// How a running server is told to end, and ends.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "berth/clock.h"
#include "frontend/server.h"

namespace berth::cli {

// Where the main thread waits for what ends the server.
class StopRequest {
 public:
  static constexpr int kByOperator = -1;  // Admin.Drain; anything else is a signal's number

  // The first one counts. Any thread.
  void Set(int cause);
  int Wait();

 private:
  std::mutex mutex_;
  std::condition_variable set_;
  int cause_ = 0;  // guarded by mutex_
};

// For so long newcomers are taken still, then what runs may go on for so long. They follow the policy file.
struct DrainTimes {
  std::atomic<Duration> delay;
  std::atomic<Duration> timeout;
};

// Two phases: health looks away while newcomers are taken still, then they are refused until all has ended. False where
// a step of the backend never ends: then neither server nor engine can be destroyed.
bool DrainServer(int cause, const DrainTimes& times, GrpcServer* server);

// All that is left then: says so in the log and ends the process with kExitFault, destroying nothing.
[[noreturn]] void ExitInMidStep();

}  // namespace berth::cli
