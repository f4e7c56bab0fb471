#include "frontend/refusal_status.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "berth/v1/inference.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace berth {
namespace {

google::rpc::Status DetailsOf(const CallEnding& ending) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(ending.status.error_details()));
  return details;
}

template <typename Message>
std::optional<Message> Find(const google::rpc::Status& details) {
  Message message;
  for (const auto& detail : details.details()) {
    if (detail.UnpackTo(&message)) return message;
  }
  return std::nullopt;
}

std::string Pushback(const CallEnding& ending) {
  for (const auto& [key, value] : ending.trailers) {
    if (key == "grpc-retry-pushback-ms") return value;
  }
  return "absent";
}

Refusal Make(RefusalReason reason) {
  Refusal refusal;
  refusal.reason = reason;
  refusal.message = "some words";
  return refusal;
}

TEST(RefusalStatusTest, EveryReasonHasItsDocumentedCode) {
  const std::map<RefusalReason, grpc::StatusCode> codes = {
      {RefusalReason::kInvalidRequest, grpc::StatusCode::INVALID_ARGUMENT},
      {RefusalReason::kUnimplemented, grpc::StatusCode::UNIMPLEMENTED},
      {RefusalReason::kModelNotFound, grpc::StatusCode::NOT_FOUND},
      {RefusalReason::kRequestTooLarge, grpc::StatusCode::INVALID_ARGUMENT},
      {RefusalReason::kQueueFull, grpc::StatusCode::RESOURCE_EXHAUSTED},
      {RefusalReason::kDuplicateRequestId, grpc::StatusCode::ALREADY_EXISTS},
      {RefusalReason::kDeadlineExceeded, grpc::StatusCode::DEADLINE_EXCEEDED},
      {RefusalReason::kCancelledByClient, grpc::StatusCode::CANCELLED},
      {RefusalReason::kDraining, grpc::StatusCode::UNAVAILABLE},
      {RefusalReason::kBackendFault, grpc::StatusCode::INTERNAL},
      {RefusalReason::kUnknownClass, grpc::StatusCode::INVALID_ARGUMENT},
      {RefusalReason::kClassNotAllowed, grpc::StatusCode::PERMISSION_DENIED},
      {RefusalReason::kClassOnHold, grpc::StatusCode::UNAVAILABLE},
      {RefusalReason::kTenantQuotaExceeded, grpc::StatusCode::RESOURCE_EXHAUSTED},
      {RefusalReason::kKvCapacityExhausted, grpc::StatusCode::RESOURCE_EXHAUSTED},
      {RefusalReason::kQueueTimeout, grpc::StatusCode::RESOURCE_EXHAUSTED},
      {RefusalReason::kShed, grpc::StatusCode::RESOURCE_EXHAUSTED},
      {RefusalReason::kDeadlineInfeasible, grpc::StatusCode::DEADLINE_EXCEEDED},
      {RefusalReason::kPreemptedTooOften, grpc::StatusCode::ABORTED},
  };
  for (const auto& [reason, code] : codes) {
    const CallEnding ending = RefusedEnding(Make(reason), "r1");
    EXPECT_EQ(ending.status.error_code(), code);
    EXPECT_EQ(ending.status.error_message(), "some words");
    const google::rpc::Status details = DetailsOf(ending);
    EXPECT_EQ(details.code(), code);
    EXPECT_EQ(details.message(), "some words");
    const auto info = Find<google::rpc::ErrorInfo>(details);
    ASSERT_TRUE(info.has_value());
    EXPECT_EQ(info->reason(), RefusalReasonName(reason));
    EXPECT_EQ(info->domain(), "berth");
    EXPECT_EQ(Find<google::rpc::RequestInfo>(details)->request_id(), "r1");
  }
}

TEST(RefusalStatusTest, ALimitIsToldWithItsUnit) {
  Refusal refusal = Make(RefusalReason::kRequestTooLarge);
  refusal.limit_name = "kv_blocks";
  refusal.limit = 8;
  refusal.asked = 9;
  const auto metadata = Find<google::rpc::ErrorInfo>(DetailsOf(RefusedEnding(refusal, "r1")))->metadata();
  EXPECT_EQ(metadata.at("limitName"), "kv_blocks");
  EXPECT_EQ(metadata.at("limitBlocks"), "8");
  EXPECT_EQ(metadata.at("requestedBlocks"), "9");
}

TEST(RefusalStatusTest, AFieldAtFaultIsABadRequestViolation) {
  Refusal refusal = Make(RefusalReason::kInvalidRequest);
  refusal.field = "sampling.top_p";
  const auto bad = Find<google::rpc::BadRequest>(DetailsOf(RefusedEnding(refusal, "r1")));
  ASSERT_TRUE(bad.has_value());
  ASSERT_EQ(bad->field_violations_size(), 1);
  EXPECT_EQ(bad->field_violations(0).field(), "sampling.top_p");
  EXPECT_EQ(bad->field_violations(0).description(), "some words");
}

TEST(RefusalStatusTest, ARetryThatHelpsIsToldTwiceAndSpread) {
  Refusal refusal = Make(RefusalReason::kQueueFull);
  refusal.retry_after = std::chrono::seconds(2);
  for (int i = 0; i < 100; ++i) {
    const CallEnding ending = RefusedEnding(refusal, "r1");
    const auto retry = Find<google::rpc::RetryInfo>(DetailsOf(ending));
    ASSERT_TRUE(retry.has_value());
    const double seconds =
        static_cast<double>(retry->retry_delay().seconds()) + static_cast<double>(retry->retry_delay().nanos()) * 1e-9;
    EXPECT_GE(seconds, 2.0);
    EXPECT_LE(seconds, 3.0);
    EXPECT_NEAR(std::stod(Pushback(ending)), seconds * 1000.0, 1.0);
  }
}

TEST(RefusalStatusTest, WhereARetryCannotHelpClientsAreToldNotTo) {
  const CallEnding ending = RefusedEnding(Make(RefusalReason::kInvalidRequest), "");
  EXPECT_EQ(Pushback(ending), "-1");
  EXPECT_FALSE(Find<google::rpc::RetryInfo>(DetailsOf(ending)).has_value());
  EXPECT_FALSE(Find<google::rpc::RequestInfo>(DetailsOf(ending)).has_value());
}

TEST(RefusalStatusTest, UsageTravelsInItsTrailer) {
  Usage usage;
  usage.output_tokens = 12;
  CallEnding ending;
  AttachUsage(usage, &ending);
  ASSERT_EQ(ending.trailers.size(), 1U);
  EXPECT_EQ(ending.trailers[0].first, "berth-usage-bin");
  v1::Usage message;
  ASSERT_TRUE(message.ParseFromString(ending.trailers[0].second));
  EXPECT_EQ(message.output_tokens(), 12);
}

}  // namespace
}  // namespace berth
