// A bound on lines of the log that anybody can cause.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "berth/clock.h"

namespace berth {

// Lets so many lines a second through; the first one after others were left out tells how many. Thread-safe.
class LineLimit {
 public:
  static constexpr int kMostPerSecond = 10;

  // What is to be written of a line that came `now`; nothing where it is left out.
  std::optional<std::string> Take(const std::string& line, TimePoint now);

 private:
  std::mutex mutex_;
  // Guarded by mutex_:
  std::optional<TimePoint> second_;  // when the current one began
  int taken_ = 0;                    // in it
  std::int64_t left_out_ = 0;        // since the last line
};

}  // namespace berth
