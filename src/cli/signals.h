// SIGINT, SIGTERM and SIGHUP as plain calls on a thread of their own.
#pragma once

#include <functional>
#include <mutex>
#include <thread>

namespace berth::cli {

// Construct before any other thread is started: threads inherit the blocked signals, so that this watcher alone takes
// them. With a handler set, the first signal calls it and the second ends the process at once with 128 + its number;
// without one, the first ends it.
class SignalWatcher {
 public:
  // What SIGHUP asks for: the end, as the others do, or what SetHangupHandler says, which ends nothing and is kept
  // while there is no handler yet.
  enum class Hangup { kEnds, kIsHandled };

  explicit SignalWatcher(Hangup hangup = Hangup::kEnds);
  ~SignalWatcher();  // the signals stay blocked
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

  // `on_first` runs on the watcher's thread, at most once. An empty one takes the handler away; it does not run after
  // this has returned.
  void SetHandler(std::function<void(int signal)> on_first);

  // Each SIGHUP calls `on_hangup`, on the watcher's thread; one that was kept does at once. An empty one takes the
  // handler away; it does not run after this has returned. REQUIRES: kIsHandled.
  void SetHangupHandler(std::function<void()> on_hangup);

 private:
  void Run();

  const Hangup hangup_;
  int signal_fd_ = -1;
  int stop_fd_ = -1;
  std::mutex mutex_;
  std::function<void(int signal)> on_first_;  // guarded by mutex_
  std::function<void()> on_hangup_;           // guarded by mutex_
  bool handled_ = false;                      // guarded by mutex_
  bool hangup_kept_ = false;                  // guarded by mutex_
  std::thread thread_;
};

}  // namespace berth::cli
