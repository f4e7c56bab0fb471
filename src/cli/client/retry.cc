#include "cli/client/retry.h"

#include <algorithm>
#include <charconv>

namespace berth {
namespace {

constexpr Duration kFirstBackoff = std::chrono::milliseconds(200);
constexpr Duration kLongestBackoff = std::chrono::seconds(10);

// Negative, or no number: never.
std::optional<Duration> ParsePushback(const std::string& text) {
  std::int64_t milliseconds = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, milliseconds);
  if (error != std::errc() || stop != end || milliseconds < 0) return std::nullopt;
  return std::chrono::milliseconds(std::min<std::int64_t>(milliseconds, 1'000'000'000));
}

}  // namespace

std::optional<Duration> RetrySchedule::After(const FailedAttempt& failed, std::optional<Duration> time_left) {
  if (retries_ >= max_retries_ || failed.delivered) return std::nullopt;
  const std::optional<Duration> wait = WaitFor(failed);
  if (!wait || (time_left && *wait >= *time_left)) return std::nullopt;
  ++retries_;
  return wait;
}

std::optional<Duration> RetrySchedule::WaitFor(const FailedAttempt& failed) {
  if (failed.pushback) {
    const bool transient = failed.code == absl::StatusCode::kUnavailable ||
                           failed.code == absl::StatusCode::kResourceExhausted ||
                           failed.code == absl::StatusCode::kAborted;
    return transient ? ParsePushback(*failed.pushback) : std::nullopt;
  }
  if (failed.code != absl::StatusCode::kUnavailable || !failed.connected) return std::nullopt;
  Duration backoff = kFirstBackoff;
  for (std::int32_t i = 0; i < retries_ && backoff < kLongestBackoff; ++i) backoff *= 2;
  backoff = std::min(backoff, kLongestBackoff);
  const Duration::rep fifth = backoff.count() / 5;
  return backoff + Duration(std::uniform_int_distribution<Duration::rep>(-fifth, fifth)(random_));
}

}  // namespace berth
