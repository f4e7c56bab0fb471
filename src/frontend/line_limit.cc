#include "frontend/line_limit.h"

#include <chrono>
#include <utility>

namespace berth {

std::optional<std::string> LineLimit::Take(const std::string& line, TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (!second_ || now - *second_ >= std::chrono::seconds(1)) {
    second_ = now;
    taken_ = 0;
  }
  if (taken_ >= kMostPerSecond) {
    ++left_out_;
    return std::nullopt;
  }
  ++taken_;
  if (left_out_ == 0) return line;
  return line + "; " + std::to_string(std::exchange(left_out_, 0)) + " lines before it were left out";
}

}  // namespace berth
