#include "histogram.h"

#include <algorithm>
#include <cmath>

namespace berth::bench {
namespace {

constexpr double kUs = 1e3;
constexpr double kMs = 1e6;

}  // namespace

void Histogram::Add(Duration value) {
  const std::int64_t ns = std::max<std::int64_t>(value.count(), 0);
  const double doublings = std::log2(std::max(1.0, static_cast<double>(ns) / kUs));
  const auto at = static_cast<std::size_t>(doublings * kStepsPerDoubling);
  counts_[std::min(at, counts_.size() - 1)].fetch_add(1, std::memory_order_relaxed);
  sum_ns_.fetch_add(ns, std::memory_order_relaxed);
  std::int64_t most = max_ns_.load(std::memory_order_relaxed);
  while (ns > most && !max_ns_.compare_exchange_weak(most, ns, std::memory_order_relaxed)) {
  }
}

std::int64_t Histogram::count() const {
  std::int64_t total = 0;
  for (const std::atomic<std::int64_t>& count : counts_) total += count.load(std::memory_order_relaxed);
  return total;
}

double Histogram::MeanMs() const {
  const std::int64_t total = count();
  return total > 0 ? static_cast<double>(sum_ns_.load()) / kMs / static_cast<double>(total) : 0.0;
}

double Histogram::QuantileMs(double q) const {
  const auto rank = static_cast<std::int64_t>(std::ceil(q * static_cast<double>(count())));
  if (rank == 0) return 0.0;
  std::int64_t below = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i].load(std::memory_order_relaxed);
    if (below >= rank) {
      const double middle = std::exp2((static_cast<double>(i) + 0.5) / kStepsPerDoubling) * kUs / kMs;
      return std::min(middle, MaxMs());
    }
  }
  return MaxMs();
}

double Histogram::MaxMs() const { return static_cast<double>(max_ns_.load()) / kMs; }

}  // namespace berth::bench
