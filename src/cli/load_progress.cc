#include "cli/load_progress.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "config/size.h"

namespace berth::cli {
namespace {

// Less than this comes within a second from any disk that a server has.
constexpr std::int64_t kWorthTelling = std::int64_t{1} << 30;

}  // namespace

LoadProgress EveryPercent(int step, std::function<void(int percent, std::int64_t total)> tell) {
  return [step, tell = std::move(tell), next = step](std::int64_t done, std::int64_t total) mutable {
    if (total < kWorthTelling) return;
    const auto percent = static_cast<int>(done / (total / 100));
    if (percent < next) return;
    next = percent - percent % step + step;
    tell(percent - percent % step, total);
  };
}

LoadProgress ShowLoadProgress() {
  if (isatty(STDERR_FILENO) == 0) return {};
  return EveryPercent(1, [](int percent, std::int64_t total) {
    std::fprintf(stderr, "\rloading %s of weights: %d%%%s", FormatBytes(total).c_str(), percent,
                 percent == 100 ? "\r\x1b[K" : "");
    std::fflush(stderr);
  });
}

}  // namespace berth::cli
