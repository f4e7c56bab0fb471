// Time as the core sees it: it comes in as an argument. Only the engine's owner asks a Clock.
#pragma once

#include <chrono>

namespace berth {

using Duration = std::chrono::nanoseconds;
// Monotonic; comparable within one process. Virtual time uses the same type.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

// A deadline that never comes.
inline constexpr TimePoint kNoDeadline = TimePoint::max();

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
};

// The machine's monotonic clock.
class SteadyClock final : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
};

inline double ToSeconds(Duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace berth
