// Random draws that are the same on every machine: std::mt19937_64 is, the library's distributions are not.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>

namespace berth::simulation {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  std::int64_t Between(std::int64_t low, std::int64_t high) {
    if (high <= low) return low;
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool Chance(double p) { return static_cast<double>(engine_() >> 11) * 0x1p-53 < p; }
  std::int64_t OneOf(std::initializer_list<std::int64_t> values) {
    return *(values.begin() + Between(0, static_cast<std::int64_t>(values.size()) - 1));
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace berth::simulation
