// When a promise counts as kept, as missed, and when it does not count.
#include <gtest/gtest.h>

#include <chrono>

#include "telemetry/slo.h"

namespace berth::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr ClassSlo kSlo = {.time_to_first_token = seconds(1), .inter_token_latency = milliseconds(200)};

std::optional<bool> Ttft(const RequestEnded& request) {
  return KeptTimeToFirstToken(kSlo, request,
                              std::holds_alternative<FinishReason>(request.reason)
                                  ? RequestOutcome::kOk
                                  : OutcomeOf(std::get<RefusalReason>(request.reason), request.started));
}

RequestEnded WithFirstTokenAfter(Duration after) {
  return {.reason = FinishReason::kLength,
          .started = true,
          .usage = {.output_tokens = 1, .time_to_first_token = after},
          .total_time = seconds(5)};
}

RequestEnded WithoutToken(RefusalReason reason, Duration total_time) {
  return {.reason = reason, .total_time = total_time};
}

TEST(SloTest, TheFirstTokenDecidesHoweverTheRequestEnded) {
  EXPECT_EQ(Ttft(WithFirstTokenAfter(seconds(1))), true);
  EXPECT_EQ(Ttft(WithFirstTokenAfter(milliseconds(1001))), false);
  RequestEnded cancelled = WithFirstTokenAfter(milliseconds(10));
  cancelled.reason = RefusalReason::kCancelledByClient;
  EXPECT_EQ(Ttft(cancelled), true);
}

TEST(SloTest, ARequestThatTheServerGaveUpMissed) {
  EXPECT_EQ(Ttft(WithoutToken(RefusalReason::kShed, milliseconds(1))), false);
  EXPECT_EQ(Ttft(WithoutToken(RefusalReason::kQueueTimeout, milliseconds(500))), false);
  EXPECT_EQ(Ttft(WithoutToken(RefusalReason::kBackendFault, milliseconds(1))), false);
}

TEST(SloTest, ACallerWhoLeftInTimeDoesNotCountAndOneWhoWaitedTooLongDoes) {
  EXPECT_EQ(Ttft(WithoutToken(RefusalReason::kCancelledByClient, milliseconds(900))), std::nullopt);
  EXPECT_EQ(Ttft(WithoutToken(RefusalReason::kCancelledByClient, seconds(2))), false);
  EXPECT_EQ(Ttft(WithoutToken(RefusalReason::kDeadlineExceeded, milliseconds(300))), std::nullopt);
}

TEST(SloTest, ARefusalDoesNotCount) {
  EXPECT_EQ(Ttft(WithoutToken(RefusalReason::kQueueFull, {})), std::nullopt);
  EXPECT_EQ(Ttft(WithoutToken(RefusalReason::kInvalidRequest, seconds(3))), std::nullopt);
}

TEST(SloTest, AClassWithoutAPromiseKeepsNone) {
  EXPECT_EQ(KeptTimeToFirstToken({}, WithFirstTokenAfter(seconds(9)), RequestOutcome::kOk), std::nullopt);
  EXPECT_EQ(KeptInterTokenLatency({}, {.usage = {.output_tokens = 9, .decode_time = seconds(9)}}), std::nullopt);
}

TEST(SloTest, TheMeanOverARequestsTokensDecides) {
  RequestEnded request{.usage = {.output_tokens = 11, .decode_time = seconds(2)}};
  EXPECT_EQ(KeptInterTokenLatency(kSlo, request), true);
  request.usage.decode_time += milliseconds(1);
  EXPECT_EQ(KeptInterTokenLatency(kSlo, request), false);
}

TEST(SloTest, OneTokenHasNoLatencyBetweenTokens) {
  EXPECT_EQ(TimePerOutputToken({.usage = {.output_tokens = 1, .decode_time = seconds(1)}}), std::nullopt);
  EXPECT_EQ(TimePerOutputToken({.usage = {.output_tokens = 3}, .choices = 3}), std::nullopt);
}

TEST(SloTest, ChoicesDecodeSideBySide) {
  // Four choices of eleven tokens each in one second: ten gaps of 100 ms in each.
  const RequestEnded request{.usage = {.output_tokens = 44, .decode_time = seconds(1)}, .choices = 4};
  EXPECT_EQ(TimePerOutputToken(request), milliseconds(100));
}

}  // namespace
}  // namespace berth::test
