// Whether a call that failed is worth another try, and when.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "berth/clock.h"

namespace berth {

// As docs/service_config.json has it for stock clients: at most five attempts.
inline constexpr std::int32_t kDefaultRetries = 4;

// One attempt that did not end well.
struct FailedAttempt {
  absl::StatusCode code = absl::StatusCode::kUnknown;
  // The trailer grpc-retry-pushback-ms, as it came.
  std::optional<std::string> pushback;
  bool connected = false;  // it, or one before it, reached the server
  bool delivered = false;  // the caller has got something of the answer: another one would not go on from there
};

// The server's word is law: with a pushback the next attempt comes after just that time, or never; the server spreads
// the times. Without one, only UNAVAILABLE is tried again (the connection broke, or something in front of the server
// has nowhere to send the call), after a time that doubles from 0.2 s up to 10 s, give or take a fifth. Nothing is
// tried that would begin after the caller's deadline.
class RetrySchedule {
 public:
  RetrySchedule(std::int32_t max_retries, std::uint32_t seed) : max_retries_(max_retries), random_(seed) {}

  // How long to wait before the next attempt; nothing where there should be none. `time_left` = until the deadline.
  std::optional<Duration> After(const FailedAttempt& failed, std::optional<Duration> time_left);

  std::int32_t retries() const { return retries_; }  // granted so far

 private:
  std::optional<Duration> WaitFor(const FailedAttempt& failed);

  const std::int32_t max_retries_;
  std::minstd_rand random_;
  std::int32_t retries_ = 0;
};

}  // namespace berth
