#include "frontend/refusal_status.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
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

const CallNames kCall = {.request_id = "r1", .service_class = "batch", .tenant = "acme", .trace_id = "0af7"};

std::map<std::string, std::string> MetadataOf(const Refusal& refusal) {
  const auto metadata = Find<google::rpc::ErrorInfo>(DetailsOf(RefusedEnding(refusal, kCall)))->metadata();
  return {metadata.begin(), metadata.end()};
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
      {RefusalReason::kModelLoading, grpc::StatusCode::UNAVAILABLE},
      {RefusalReason::kCredentialsMissing, grpc::StatusCode::UNAUTHENTICATED},
      {RefusalReason::kCredentialsInvalid, grpc::StatusCode::UNAUTHENTICATED},
      {RefusalReason::kTenantMismatch, grpc::StatusCode::PERMISSION_DENIED},
      {RefusalReason::kAdminRequired, grpc::StatusCode::PERMISSION_DENIED},
      {RefusalReason::kSlowReader, grpc::StatusCode::RESOURCE_EXHAUSTED},
      {RefusalReason::kCancelledByOperator, grpc::StatusCode::ABORTED},
      {RefusalReason::kDrainTimeout, grpc::StatusCode::UNAVAILABLE},
  };
  for (const auto& [reason, code] : codes) {
    const CallEnding ending = RefusedEnding(Make(reason), kCall);
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

TEST(RefusalStatusTest, ALimitIsToldWithItsUnitAndExplained) {
  const std::map<std::string, std::string> units = {
      {"kv_blocks", "Blocks"},
      {"class_kv_blocks", "Blocks"},
      {"max_kv", "Blocks"},
      {"context_tokens", "Tokens"},
      {"max_output_tokens", "Tokens"},
      {"max_sequence_tokens", "Tokens"},
      {"tokens_per_minute", "Tokens"},
      {"burst_tokens", "Tokens"},
      {"queue.max_tokens", "Tokens"},
      {"queue.max_requests", "Requests"},
      {"server.max_queued_requests", "Requests"},
      {"max_concurrent_requests", "Requests"},
      {"running_sequences", "Sequences"},
      {"max_running_sequences", "Sequences"},
      {"max_preemptions", "Preemptions"},
      {"prompt_bytes", "Bytes"},
      {"queue.max_wait", "Ms"},
  };
  std::ifstream file(BERTH_TEST_DATA_DIR "/../../docs/clients.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  for (const auto& [name, unit] : units) {
    EXPECT_NE(page.find("`" + name + "`"), std::string::npos) << "docs/clients.md does not explain " << name;
    Refusal refusal = Make(RefusalReason::kRequestTooLarge);
    refusal.limit_name = name;
    refusal.limit = 8;
    refusal.asked = 9;
    const std::map<std::string, std::string> expected = {
        {"serviceClass", "batch"}, {"limitName", name}, {"limit" + unit, "8"}, {"requested" + unit, "9"}};
    EXPECT_EQ(MetadataOf(refusal), expected);
  }
}

TEST(RefusalStatusTest, ADeadlineThatCannotBeKeptSaysWhatItWouldTake) {
  Refusal refusal = Make(RefusalReason::kDeadlineInfeasible);
  refusal.predicted = std::chrono::microseconds(2500);
  refusal.remaining = std::chrono::milliseconds(2);
  refusal.computed_tokens = 7;
  const std::map<std::string, std::string> expected = {
      {"serviceClass", "batch"}, {"predictedMs", "3"}, {"remainingMs", "2"}, {"computedTokens", "7"}};
  EXPECT_EQ(MetadataOf(refusal), expected);
}

TEST(RefusalStatusTest, ARefusalsOwnClassGoesFirst) {
  Refusal refusal = Make(RefusalReason::kQueueFull);
  refusal.service_class = "interactive";
  EXPECT_EQ(MetadataOf(refusal).at("serviceClass"), "interactive");
}

TEST(RefusalStatusTest, AQuotaThatIsUsedUpIsNamed) {
  struct Case {
    RefusalReason reason;
    std::string limit_name;
    std::string subject;
  };
  for (const Case& c : {Case{RefusalReason::kTenantQuotaExceeded, "tokens_per_minute", "tenant:acme"},
                        Case{RefusalReason::kTenantQuotaExceeded, "max_concurrent_requests", "tenant:acme"},
                        Case{RefusalReason::kKvCapacityExhausted, "class_kv_blocks", "class:batch"},
                        Case{RefusalReason::kKvCapacityExhausted, "kv_blocks", "server"},
                        Case{RefusalReason::kKvCapacityExhausted, "running_sequences", "server"},
                        Case{RefusalReason::kQueueFull, "queue.max_requests", "class:batch"},
                        Case{RefusalReason::kShed, "server.max_queued_requests", "server"}}) {
    Refusal refusal = Make(c.reason);
    refusal.limit_name = c.limit_name;
    refusal.limit = 8;
    const auto failure = Find<google::rpc::QuotaFailure>(DetailsOf(RefusedEnding(refusal, kCall)));
    ASSERT_TRUE(failure.has_value());
    ASSERT_EQ(failure->violations_size(), 1);
    const auto& violation = failure->violations(0);
    EXPECT_EQ(violation.subject(), c.subject);
    EXPECT_EQ(violation.description(), "some words");
    EXPECT_EQ(violation.quota_id(), c.limit_name);
    EXPECT_EQ(violation.quota_value(), 8);
    EXPECT_EQ(violation.quota_dimensions().at("tenant"), "acme");
    EXPECT_EQ(violation.quota_dimensions().at("class"), "batch");
    EXPECT_EQ(violation.api_service(), "berth.v1.Inference");
  }
  Refusal too_large = Make(RefusalReason::kRequestTooLarge);
  too_large.limit_name = "kv_blocks";
  EXPECT_FALSE(Find<google::rpc::QuotaFailure>(DetailsOf(RefusedEnding(too_large, kCall))).has_value());
}

TEST(RefusalStatusTest, TheTraceIsToldWithTheRequest) {
  EXPECT_EQ(
      Find<google::rpc::RequestInfo>(DetailsOf(RefusedEnding(Make(RefusalReason::kQueueFull), kCall)))->serving_data(),
      "0af7");
}

TEST(RefusalStatusTest, AFieldAtFaultIsABadRequestViolation) {
  Refusal refusal = Make(RefusalReason::kInvalidRequest);
  refusal.field = "sampling.top_p";
  const auto bad = Find<google::rpc::BadRequest>(DetailsOf(RefusedEnding(refusal, kCall)));
  ASSERT_TRUE(bad.has_value());
  ASSERT_EQ(bad->field_violations_size(), 1);
  EXPECT_EQ(bad->field_violations(0).field(), "sampling.top_p");
  EXPECT_EQ(bad->field_violations(0).description(), "some words");
}

TEST(RefusalStatusTest, ARetryThatHelpsIsToldTwiceAndSpread) {
  Refusal refusal = Make(RefusalReason::kQueueFull);
  refusal.retry_after = std::chrono::seconds(2);
  for (int i = 0; i < 100; ++i) {
    const CallEnding ending = RefusedEnding(refusal, kCall);
    const auto retry = Find<google::rpc::RetryInfo>(DetailsOf(ending));
    ASSERT_TRUE(retry.has_value());
    const double seconds =
        static_cast<double>(retry->retry_delay().seconds()) + static_cast<double>(retry->retry_delay().nanos()) * 1e-9;
    EXPECT_GE(seconds, 2.0);
    EXPECT_LE(seconds, 3.0);
    EXPECT_NEAR(std::stod(Pushback(ending)), seconds * 1000.0, 1.0);
  }
}

TEST(RefusalStatusTest, NobodyIsCalledBackWithinMilliseconds) {
  Refusal refusal = Make(RefusalReason::kKvCapacityExhausted);
  refusal.retry_after = std::chrono::microseconds(10);
  EXPECT_GE(std::stoi(Pushback(RefusedEnding(refusal, kCall))), 100);
}

TEST(RefusalStatusTest, WhereARetryCannotHelpClientsAreToldNotTo) {
  const CallEnding ending = RefusedEnding(Make(RefusalReason::kInvalidRequest), {});
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
