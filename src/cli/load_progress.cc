#include "cli/load_progress.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include <spdlog/spdlog.h>

#include "config/size.h"

namespace berth::cli {
namespace {

// Less than this comes within a second from any disk that a server has.
constexpr std::int64_t kWorthTelling = std::int64_t{1} << 30;

// Calls `tell` with every `step` percent that is reached, once each.
template <typename Tell>
LoadProgress Every(int step, Tell tell) {
  return [step, tell, next = step](std::int64_t done, std::int64_t total) mutable {
    if (total < kWorthTelling) return;
    const auto percent = static_cast<int>(done / (total / 100));
    if (percent < next) return;
    next = percent - percent % step + step;
    tell(percent - percent % step, total);
  };
}

}  // namespace

LoadProgress ShowLoadProgress() {
  if (isatty(STDERR_FILENO) == 0) return {};
  return Every(1, [](int percent, std::int64_t total) {
    std::fprintf(stderr, "\rloading %s of weights: %d%%%s", FormatBytes(total).c_str(), percent,
                 percent == 100 ? "\r\x1b[K" : "");
    std::fflush(stderr);
  });
}

LoadProgress LogLoadProgress() {
  return Every(10, [](int percent, std::int64_t total) {
    spdlog::info("loading {} of weights: {}%", FormatBytes(total), percent);
  });
}

}  // namespace berth::cli
