#include "frontend/refusal_status.h"

#include <google/protobuf/any.pb.h>

#include <algorithm>
#include <cctype>
#include <random>

#include "absl/strings/str_cat.h"
#include "frontend/encode.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace berth {
namespace {

// A place that may be free in the next step is no reason for a client to spend all its attempts within a few steps.
constexpr Duration kLeastRetryAfter = std::chrono::milliseconds(100);

constexpr char kErrorDomain[] = "berth";
constexpr char kApiService[] = "berth.v1.Inference";

// What a limit counts: "kv_blocks" counts blocks. The others are keys of the policy file that end otherwise.
std::string UnitOf(const std::string& limit_name) {
  if (limit_name == "max_kv") return "blocks";
  if (limit_name == "tokens_per_minute") return "tokens";
  if (limit_name == "queue.max_wait") return "ms";
  return limit_name.substr(limit_name.find_last_of("_.") + 1);
}

std::string Capitalized(std::string word) {
  if (!word.empty()) word[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(word[0])));
  return word;
}

std::string Milliseconds(Duration d) {
  return absl::StrCat(std::chrono::ceil<std::chrono::milliseconds>(std::max(d, Duration::zero())).count());
}

google::rpc::ErrorInfo ErrorInfoOf(const Refusal& refusal, const std::string& service_class) {
  google::rpc::ErrorInfo info;
  info.set_reason(RefusalReasonName(refusal.reason));
  info.set_domain(kErrorDomain);
  auto& metadata = *info.mutable_metadata();
  if (!service_class.empty()) metadata["serviceClass"] = service_class;
  if (!refusal.limit_name.empty()) {
    const std::string unit = Capitalized(UnitOf(refusal.limit_name));
    metadata["limitName"] = refusal.limit_name;
    metadata["limit" + unit] = absl::StrCat(refusal.limit);
    metadata["requested" + unit] = absl::StrCat(refusal.asked);
  }
  if (refusal.predicted) metadata["predictedMs"] = Milliseconds(*refusal.predicted);
  if (refusal.remaining) metadata["remainingMs"] = Milliseconds(*refusal.remaining);
  if (refusal.predicted) metadata["computedTokens"] = absl::StrCat(refusal.computed_tokens);
  return info;
}

// Whether waiting for others, or for a quota to fill up, is all that the request lacks.
bool MeetsQuota(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::kTenantQuotaExceeded:
    case RefusalReason::kKvCapacityExhausted:
    case RefusalReason::kQueueFull:
    case RefusalReason::kShed:
      return true;
    default:
      return false;
  }
}

// Whose limit it is.
std::string QuotaSubject(const Refusal& refusal, const std::string& service_class, const std::string& tenant) {
  if (refusal.reason == RefusalReason::kTenantQuotaExceeded) return "tenant:" + tenant;
  const std::string& limit = refusal.limit_name;
  if (limit == "kv_blocks" || limit == "running_sequences" || limit.starts_with("server.")) return "server";
  return "class:" + service_class;
}

google::rpc::QuotaFailure QuotaFailureOf(const Refusal& refusal, const std::string& service_class,
                                         const std::string& tenant) {
  google::rpc::QuotaFailure failure;
  auto* violation = failure.add_violations();
  violation->set_subject(QuotaSubject(refusal, service_class, tenant));
  violation->set_description(refusal.message);
  violation->set_api_service(kApiService);
  violation->set_quota_metric(UnitOf(refusal.limit_name));
  violation->set_quota_id(refusal.limit_name);
  auto& dimensions = *violation->mutable_quota_dimensions();
  if (!tenant.empty()) dimensions["tenant"] = tenant;
  if (!service_class.empty()) dimensions["class"] = service_class;
  violation->set_quota_value(refusal.limit);
  return failure;
}

Duration Spread(Duration retry_after) {
  thread_local std::minstd_rand random{std::random_device{}()};
  retry_after = std::max(retry_after, kLeastRetryAfter);
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

CallEnding RefusedEnding(const Refusal& refusal, const CallNames& names) {
  const std::string& service_class = refusal.service_class.empty() ? names.service_class : refusal.service_class;
  google::rpc::Status details;
  details.set_code(StatusCodeOf(refusal.reason));
  details.set_message(refusal.message);
  details.add_details()->PackFrom(ErrorInfoOf(refusal, service_class));
  if (!names.request_id.empty()) {
    google::rpc::RequestInfo info;
    info.set_request_id(names.request_id);
    info.set_serving_data(names.trace_id);
    details.add_details()->PackFrom(info);
  }
  if (!refusal.field.empty()) {
    google::rpc::BadRequest bad;
    auto* violation = bad.add_field_violations();
    violation->set_field(refusal.field);
    violation->set_description(refusal.message);
    details.add_details()->PackFrom(bad);
  }
  if (MeetsQuota(refusal.reason) && !refusal.limit_name.empty()) {
    details.add_details()->PackFrom(QuotaFailureOf(refusal, service_class, names.tenant));
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
