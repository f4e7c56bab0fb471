// Times in buckets of constant relative width, from 1 µs to an hour: whatever is counted, the memory stays the same.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "berth/clock.h"

namespace berth::bench {

// Thread-safe; what is read while others count may be a moment old.
class Histogram {
 public:
  void Add(Duration value);

  std::int64_t count() const;
  // In milliseconds, 0 where nothing was counted. A quantile is its bucket's middle: off by less than 0.8 %.
  double MeanMs() const;
  double QuantileMs(double q) const;
  double MaxMs() const;

 private:
  static constexpr int kStepsPerDoubling = 64;
  static constexpr int kDoublings = 32;

  std::array<std::atomic<std::int64_t>, kStepsPerDoubling * kDoublings> counts_{};
  std::atomic<std::int64_t> sum_ns_{0};
  std::atomic<std::int64_t> max_ns_{0};
};

}  // namespace berth::bench
