#include "frontend/refusal_status.h"

#include <google/protobuf/any.pb.h>

#include <cctype>
#include <random>

#include "absl/strings/str_cat.h"
#include "frontend/encode.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace berth {
namespace {

constexpr char kErrorDomain[] = "berth";

// "kv_blocks" counts blocks: the keys are limitBlocks and requestedBlocks.
std::string UnitOf(const std::string& limit_name) {
  std::string unit = limit_name.substr(limit_name.rfind('_') + 1);
  if (!unit.empty()) unit[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(unit[0])));
  return unit;
}

google::rpc::ErrorInfo ErrorInfoOf(const Refusal& refusal) {
  google::rpc::ErrorInfo info;
  info.set_reason(RefusalReasonName(refusal.reason));
  info.set_domain(kErrorDomain);
  if (!refusal.limit_name.empty()) {
    const std::string unit = UnitOf(refusal.limit_name);
    auto& metadata = *info.mutable_metadata();
    metadata["limitName"] = refusal.limit_name;
    metadata["limit" + unit] = absl::StrCat(refusal.limit);
    metadata["requested" + unit] = absl::StrCat(refusal.asked);
  }
  return info;
}

Duration Spread(Duration retry_after) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return retry_after + Duration(std::uniform_int_distribution<Duration::rep>(0, retry_after.count() / 2)(random));
}

}  // namespace

Refusal DrainingRefusal() {
  Refusal refusal;
  refusal.reason = RefusalReason::kDraining;
  refusal.message = "the server is shutting down: send the request to another one, or again in a while";
  refusal.retry_after = std::chrono::seconds(1);
  return refusal;
}

grpc::StatusCode StatusCodeOf(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::kInvalidRequest:
    case RefusalReason::kUnknownClass:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case RefusalReason::kCredentialsMissing:
    case RefusalReason::kCredentialsInvalid:
      return grpc::StatusCode::UNAUTHENTICATED;
    case RefusalReason::kClassNotAllowed:
    case RefusalReason::kTenantMismatch:
    case RefusalReason::kAdminRequired:
      return grpc::StatusCode::PERMISSION_DENIED;
    case RefusalReason::kUnimplemented:
      return grpc::StatusCode::UNIMPLEMENTED;
    case RefusalReason::kModelNotFound:
      return grpc::StatusCode::NOT_FOUND;
    case RefusalReason::kRequestTooLarge:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case RefusalReason::kQueueFull:
    case RefusalReason::kQueueTimeout:
    case RefusalReason::kShed:
    case RefusalReason::kTenantQuotaExceeded:
    case RefusalReason::kKvCapacityExhausted:
    case RefusalReason::kSlowReader:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case RefusalReason::kDuplicateRequestId:
      return grpc::StatusCode::ALREADY_EXISTS;
    case RefusalReason::kDeadlineExceeded:
    case RefusalReason::kDeadlineInfeasible:
      return grpc::StatusCode::DEADLINE_EXCEEDED;
    case RefusalReason::kCancelledByClient:
      return grpc::StatusCode::CANCELLED;
    case RefusalReason::kDraining:
    case RefusalReason::kDrainTimeout:
    case RefusalReason::kModelLoading:
    case RefusalReason::kClassOnHold:
      return grpc::StatusCode::UNAVAILABLE;
    case RefusalReason::kPreemptedTooOften:
    case RefusalReason::kCancelledByOperator:
      return grpc::StatusCode::ABORTED;
    case RefusalReason::kBackendFault:
      return grpc::StatusCode::INTERNAL;
  }
  return grpc::StatusCode::UNKNOWN;
}

CallEnding RefusedEnding(const Refusal& refusal, const std::string& request_id) {
  google::rpc::Status details;
  details.set_code(StatusCodeOf(refusal.reason));
  details.set_message(refusal.message);
  details.add_details()->PackFrom(ErrorInfoOf(refusal));
  if (!request_id.empty()) {
    google::rpc::RequestInfo info;
    info.set_request_id(request_id);
    details.add_details()->PackFrom(info);
  }
  if (!refusal.field.empty()) {
    google::rpc::BadRequest bad;
    auto* violation = bad.add_field_violations();
    violation->set_field(refusal.field);
    violation->set_description(refusal.message);
    details.add_details()->PackFrom(bad);
  }

  CallEnding ending;
  std::string pushback_ms = "-1";
  if (refusal.retry_after) {
    const Duration retry_after = Spread(*refusal.retry_after);
    google::rpc::RetryInfo retry;
    EncodeDuration(retry_after, retry.mutable_retry_delay());
    details.add_details()->PackFrom(retry);
    pushback_ms = absl::StrCat(std::chrono::ceil<std::chrono::milliseconds>(retry_after).count());
  }
  ending.trailers.emplace_back("grpc-retry-pushback-ms", pushback_ms);
  ending.status = grpc::Status(StatusCodeOf(refusal.reason), refusal.message, details.SerializeAsString());
  return ending;
}

void AttachUsage(const Usage& usage, CallEnding* ending) {
  v1::Usage message;
  EncodeUsage(usage, &message);
  ending->trailers.emplace_back("berth-usage-bin", message.SerializeAsString());
}

}  // namespace berth
