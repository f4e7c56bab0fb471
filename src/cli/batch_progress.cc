#include "cli/batch_progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "base/text.h"
#include "cli/output.h"

namespace berth::cli {
namespace {

constexpr auto kBarPeriod = std::chrono::milliseconds(200);
constexpr auto kLinePeriod = std::chrono::seconds(10);
constexpr int kBarColumns = 24;

TimePoint Now() { return SteadyClock().Now(); }

int TerminalColumns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void ToStandardError(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

}  // namespace

double BatchCounts::tokens_per_second() const {
  return elapsed > Duration::zero() ? static_cast<double>(output_tokens) / ToSeconds(elapsed) : 0.0;
}

std::string MinutesAndSeconds(double seconds) {
  const std::int64_t total = std::llround(seconds);
  std::array<char, 48> text{};
  if (total >= 3600) {
    std::snprintf(text.data(), text.size(), "%lld:%02lld:%02lld", static_cast<long long>(total / 3600),
                  static_cast<long long>(total / 60 % 60), static_cast<long long>(total % 60));
  } else {
    std::snprintf(text.data(), text.size(), "%lld:%02lld", static_cast<long long>(total / 60),
                  static_cast<long long>(total % 60));
  }
  return text.data();
}

std::string ProgressText(const BatchCounts& counts) {
  std::string text = GroupDigits(counts.ended());
  if (counts.lines) text += " of " + GroupDigits(*counts.lines);
  text += " lines";
  if (counts.failed > 0) text += " · " + GroupDigits(counts.failed) + " failed";
  text += " · " + Fixed(counts.tokens_per_second(), counts.tokens_per_second() < 10 ? 1 : 0) + " tokens/s";
  const std::int64_t here = counts.answered + counts.failed;  // the skipped ones took no time
  if (counts.lines && here > 0) {
    const double per_line = ToSeconds(counts.elapsed) / static_cast<double>(here);
    text +=
        " · " +
        MinutesAndSeconds(per_line * static_cast<double>(std::max<std::int64_t>(0, *counts.lines - counts.ended()))) +
        " left";
  }
  return text;
}

std::string ProgressBar(const BatchCounts& counts, int columns) {
  std::string bar;
  if (counts.lines && *counts.lines > 0) {
    const double share = std::min(1.0, static_cast<double>(counts.ended()) / static_cast<double>(*counts.lines));
    const auto full = static_cast<std::size_t>(share * kBarColumns);
    bar = "[" + std::string(full, '#') + std::string(kBarColumns - full, '.') + "] " + Fixed(share * 100, 0) + "% · ";
  }
  bar += ProgressText(counts);
  // Bytes are at least as many as columns: a little early, never too late.
  return std::string(CutAtCharacter(bar, static_cast<std::size_t>(std::max(1, columns - 1))));
}

BatchProgress::BatchProgress(std::optional<std::int64_t> lines, std::int64_t skipped)
    : terminal_(isatty(STDERR_FILENO) != 0), start_(Now()) {
  counts_.lines = lines;
  counts_.skipped = skipped;
  thread_ = std::thread([this] { Run(); });
}

BatchProgress::~BatchProgress() { Stop(); }

void BatchProgress::AddTokens(std::int64_t tokens) {
  const std::lock_guard lock(mutex_);
  counts_.output_tokens += tokens;
}

void BatchProgress::AddAnswered(std::int64_t prompt_tokens) {
  const std::lock_guard lock(mutex_);
  ++counts_.answered;
  counts_.prompt_tokens += prompt_tokens;
}

void BatchProgress::AddFailed() {
  const std::lock_guard lock(mutex_);
  ++counts_.failed;
}

void BatchProgress::Stop() {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
  }
  wake_.notify_all();
  thread_.join();
  if (terminal_) ToStandardError("\r\x1b[K");
}

BatchCounts BatchProgress::CountsLocked() const {
  BatchCounts counts = counts_;
  counts.elapsed = Now() - start_;
  return counts;
}

BatchCounts BatchProgress::counts() const {
  const std::lock_guard lock(mutex_);
  return CountsLocked();
}

void BatchProgress::Run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, terminal_ ? Duration(kBarPeriod) : Duration(kLinePeriod), [this] { return stopped_; })) {
    const BatchCounts counts = CountsLocked();
    ToStandardError(terminal_ ? "\r" + ProgressBar(counts, TerminalColumns()) + "\x1b[K"
                              : "berth batch: " + ProgressText(counts) + "\n");
  }
}

}  // namespace berth::cli
