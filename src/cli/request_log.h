// One line in the log for every request that ended: what was asked of it, how it ended, what it cost. Never its prompt
// and never its answer.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "berth/clock.h"
#include "berth/metrics.h"
#include "cli/output.h"
#include "cli/server_log.h"

namespace berth::cli {

// Thread-safe. A thread of its own writes, so that a log that is not read holds up no request: what it has no room to
// keep is left out, and counted. So are requests beyond kRefusalsPerSecond that never started, which anybody can cause.
class RequestLog {
 public:
  static constexpr int kRefusalsPerSecond = 10;
  static constexpr std::size_t kMaxWaiting = 4096;  // lines
  static constexpr char kEndedMessage[] = "request ended";
  static constexpr char kLeftOutMessage[] = "requests left out of the log";

  using Write = std::function<void(LogLevel level, const std::string& message, const Json& fields)>;

  // `clock` must outlive it; `write` runs on the thread.
  RequestLog(const Clock* clock, Write write);
  // Writes what is there.
  ~RequestLog();
  RequestLog(const RequestLog&) = delete;
  RequestLog& operator=(const RequestLog&) = delete;

  // As MetricSink's.
  void OnPolicy(const PolicyNames& names);
  void OnEnd(const RequestEnded& request);

 private:
  using RealTime = std::chrono::steady_clock;
  struct Line {
    LogLevel level = LogLevel::kInfo;
    std::string message;
    Json fields;
  };

  bool HasRoomLocked(bool refused);
  Json FieldsOf(const RequestEnded& request) const;
  void Run();

  const Clock* const clock_;
  const Write write_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::vector<std::string> classes_;
  std::vector<std::string> tenants_;
  std::deque<Line> waiting_;
  TimePoint second_{};  // when the current second of refusals began
  int refusals_ = 0;    // in it
  std::int64_t left_out_ = 0;
  RealTime::time_point tell_left_out_at_;
  bool stopped_ = false;

  std::thread thread_;  // last: it uses everything above
};

}  // namespace berth::cli
