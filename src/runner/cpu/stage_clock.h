// Where the time of steps goes, for benchmarks: as the first thread sees it, so that waiting for the others counts for
// the stage that waits.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "berth/clock.h"

namespace berth {

enum class Stage : std::uint8_t { kCopies, kRows, kProjections, kAttention, kHead, kSampling };
inline constexpr std::size_t kStages = 6;

constexpr const char* StageName(Stage stage) {
  switch (stage) {
    case Stage::kCopies:
      return "copies";
    case Stage::kRows:
      return "rows";  // embedding, norms, rotation, activation, rounding to int8
    case Stage::kProjections:
      return "projections";
    case Stage::kAttention:
      return "attention";
    case Stage::kHead:
      return "head";
    case Stage::kSampling:
      return "sampling";
  }
  return "?";
}

// Summed over steps.
struct StageTimes {
  std::array<Duration, kStages> time{};
};

// Adds to `times`, where there are any, what passed since the last mark. Used by one thread.
class StageClock {
 public:
  explicit StageClock(StageTimes* times) : times_(times) {}

  void Start() {
    if (times_ != nullptr) last_ = std::chrono::steady_clock::now();
  }
  void Mark(Stage stage) {
    if (times_ == nullptr) return;
    const auto now = std::chrono::steady_clock::now();
    times_->time[static_cast<std::size_t>(stage)] += now - last_;
    last_ = now;
  }

 private:
  StageTimes* const times_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace berth
