#include "cli/client/retry.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace berth {
namespace {

using std::chrono::milliseconds;
using Code = absl::StatusCode;

FailedAttempt Failed(Code code, std::optional<std::string> pushback = {}) {
  return {.code = code, .pushback = std::move(pushback), .connected = true};
}

std::optional<Duration> WaitAfter(const FailedAttempt& failed, std::optional<Duration> time_left = {}) {
  return RetrySchedule(4, 1).After(failed, time_left);
}

TEST(RetrySchedule, TheServersPushbackIsTheWait) {
  EXPECT_EQ(WaitAfter(Failed(Code::kResourceExhausted, "1234")), milliseconds(1234));
  EXPECT_EQ(WaitAfter(Failed(Code::kUnavailable, "0")), milliseconds(0));
  EXPECT_EQ(WaitAfter(Failed(Code::kAborted, "50")), milliseconds(50));
}

TEST(RetrySchedule, APushbackThatIsNegativeOrNoNumberMeansNever) {
  for (const char* pushback : {"-1", "-5", "", "soon", "12x", "99999999999999999999"}) {
    EXPECT_EQ(WaitAfter(Failed(Code::kUnavailable, pushback)), std::nullopt) << pushback;
  }
}

TEST(RetrySchedule, WhatCannotSucceedIsNotTried) {
  for (const Code code : {Code::kInvalidArgument, Code::kNotFound, Code::kUnauthenticated, Code::kPermissionDenied,
                          Code::kAlreadyExists, Code::kDeadlineExceeded, Code::kCancelled, Code::kInternal}) {
    EXPECT_EQ(WaitAfter(Failed(code)), std::nullopt) << static_cast<int>(code);
    EXPECT_EQ(WaitAfter(Failed(code, "100")), std::nullopt) << static_cast<int>(code);
  }
  // gRPC's own, of a message that is too large; Berth's always has a pushback.
  EXPECT_EQ(WaitAfter(Failed(Code::kResourceExhausted)), std::nullopt);
}

TEST(RetrySchedule, WhatHasDeliveredAnythingIsNotTried) {
  FailedAttempt failed = Failed(Code::kUnavailable, "10");
  failed.delivered = true;
  EXPECT_EQ(WaitAfter(failed), std::nullopt);
}

TEST(RetrySchedule, AnAddressWhereNobodyEverAnsweredIsNotTried) {
  FailedAttempt failed = Failed(Code::kUnavailable);
  EXPECT_TRUE(WaitAfter(failed).has_value());
  failed.connected = false;
  EXPECT_EQ(WaitAfter(failed), std::nullopt);
}

TEST(RetrySchedule, WithoutAPushbackTheWaitDoublesWithJitterUpToABound) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    RetrySchedule schedule(20, seed);
    double expected = 0.2;
    for (int i = 0; i < 20; ++i) {
      const std::optional<Duration> wait = schedule.After(Failed(Code::kUnavailable), std::nullopt);
      ASSERT_TRUE(wait.has_value());
      EXPECT_GE(ToSeconds(*wait), 0.8 * expected - 1e-9);
      EXPECT_LE(ToSeconds(*wait), 1.2 * expected + 1e-9);
      expected = std::min(10.0, 2 * expected);
    }
  }
  EXPECT_NE(RetrySchedule(1, 1).After(Failed(Code::kUnavailable), {}),
            RetrySchedule(1, 2).After(Failed(Code::kUnavailable), {}));
}

TEST(RetrySchedule, TriesAsOftenAsAllowed) {
  RetrySchedule schedule(2, 1);
  EXPECT_TRUE(schedule.After(Failed(Code::kUnavailable, "1"), {}).has_value());
  EXPECT_TRUE(schedule.After(Failed(Code::kUnavailable, "1"), {}).has_value());
  EXPECT_EQ(schedule.retries(), 2);
  EXPECT_EQ(schedule.After(Failed(Code::kUnavailable, "1"), {}), std::nullopt);
  EXPECT_EQ(schedule.retries(), 2);
  EXPECT_EQ(RetrySchedule(0, 1).After(Failed(Code::kUnavailable, "1"), {}), std::nullopt);
}

TEST(RetrySchedule, NothingBeginsAfterTheDeadline) {
  EXPECT_EQ(WaitAfter(Failed(Code::kUnavailable, "500"), milliseconds(501)), milliseconds(500));
  EXPECT_EQ(WaitAfter(Failed(Code::kUnavailable, "500"), milliseconds(500)), std::nullopt);
  EXPECT_EQ(WaitAfter(Failed(Code::kUnavailable, "500"), milliseconds(-1)), std::nullopt);
}

}  // namespace
}  // namespace berth
