// What admission is asked and what it answers, as values. A client's fault or a full queue is an answer, not an error
// of ours.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "berth/clock.h"
#include "berth/policy.h"
#include "berth/units.h"

namespace berth {

// Why a request did not get what it asked for; the frontend maps each to one gRPC status and sends the name as
// ErrorInfo.reason.
enum class RefusalReason : std::uint8_t {
  kInvalidRequest,
  kUnimplemented,
  kModelNotFound,
  kRequestTooLarge,
  kQueueFull,
  kDuplicateRequestId,
  kDeadlineExceeded,
  kCancelledByClient,
  kDraining,
  kBackendFault,
  kUnknownClass,
  kClassNotAllowed,
  kClassOnHold,
  kTenantQuotaExceeded,
  kKvCapacityExhausted,
  kQueueTimeout,
  kShed,
  kDeadlineInfeasible,
  kPreemptedTooOften,
  kModelLoading,
  kCredentialsMissing,
  kCredentialsInvalid,
  kTenantMismatch,
  kAdminRequired,
  kSlowReader,
  kCancelledByOperator,
  kDrainTimeout,
};

// "QUEUE_FULL" and so on: stable, what clients match on.
constexpr const char* RefusalReasonName(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::kInvalidRequest:
      return "INVALID_REQUEST";
    case RefusalReason::kUnimplemented:
      return "UNIMPLEMENTED";
    case RefusalReason::kModelNotFound:
      return "MODEL_NOT_FOUND";
    case RefusalReason::kRequestTooLarge:
      return "REQUEST_TOO_LARGE";
    case RefusalReason::kQueueFull:
      return "QUEUE_FULL";
    case RefusalReason::kDuplicateRequestId:
      return "DUPLICATE_REQUEST_ID";
    case RefusalReason::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case RefusalReason::kCancelledByClient:
      return "CANCELLED_BY_CLIENT";
    case RefusalReason::kDraining:
      return "DRAINING";
    case RefusalReason::kBackendFault:
      return "BACKEND_FAULT";
    case RefusalReason::kUnknownClass:
      return "UNKNOWN_CLASS";
    case RefusalReason::kClassNotAllowed:
      return "CLASS_NOT_ALLOWED";
    case RefusalReason::kClassOnHold:
      return "CLASS_ON_HOLD";
    case RefusalReason::kTenantQuotaExceeded:
      return "TENANT_QUOTA_EXCEEDED";
    case RefusalReason::kKvCapacityExhausted:
      return "KV_CAPACITY_EXHAUSTED";
    case RefusalReason::kQueueTimeout:
      return "QUEUE_TIMEOUT";
    case RefusalReason::kShed:
      return "SHED";
    case RefusalReason::kDeadlineInfeasible:
      return "DEADLINE_INFEASIBLE";
    case RefusalReason::kPreemptedTooOften:
      return "PREEMPTED_TOO_OFTEN";
    case RefusalReason::kModelLoading:
      return "MODEL_LOADING";
    case RefusalReason::kCredentialsMissing:
      return "CREDENTIALS_MISSING";
    case RefusalReason::kCredentialsInvalid:
      return "CREDENTIALS_INVALID";
    case RefusalReason::kTenantMismatch:
      return "TENANT_MISMATCH";
    case RefusalReason::kAdminRequired:
      return "ADMIN_REQUIRED";
    case RefusalReason::kSlowReader:
      return "SLOW_READER";
    case RefusalReason::kCancelledByOperator:
      return "CANCELLED_BY_OPERATOR";
    case RefusalReason::kDrainTimeout:
      return "DRAIN_TIMEOUT";
  }
  return "?";
}

struct Refusal {
  RefusalReason reason = RefusalReason::kInvalidRequest;
  // One line for a person: the thing, the limit, the remedy.
  std::string message;
  // The request field at fault, in proto spelling ("sampling.top_p"); empty when no single field is.
  std::string field;
  // The limit that bound, where one did: its name ("kv_blocks", "context_tokens"), its value and what was asked.
  std::string limit_name;
  std::int64_t limit = 0;
  std::int64_t asked = 0;
  // When to come back; absent where a retry cannot help.
  std::optional<Duration> retry_after;
  // Of a deadline that cannot be kept: how long it would take from now, and how long is left.
  std::optional<Duration> predicted;
  std::optional<Duration> remaining;
  // Tokens that were computed before it ended, all for nothing.
  std::int64_t computed_tokens = 0;
  // The class it was meant for, where that was known. Set by whoever tells the caller.
  std::string service_class;
};

// What is known of a request before its prompt is tokenized.
struct Arrival {
  ClassId service_class = 0;  // an index outside the policy = a class nobody knows
  TenantId tenant = 0;
  std::int32_t n = 1;
  bool duplicate_id = false;             // a live request of the tenant has this request id
  std::int64_t least_prompt_tokens = 1;  // bytes ÷ the longest token
};

// A request as admission sees it. `overload` is its class's, resolved when it arrived.
struct AdmissionRequest {
  RequestKey key = 0;
  ClassId service_class = 0;
  TenantId tenant = 0;
  std::int64_t prompt_tokens = 1;
  std::int64_t max_output_tokens = 1;
  std::int32_t n = 1;  // sequences: one slot each
  TimePoint arrival{};
  TimePoint deadline = kNoDeadline;
  Overload overload = Overload::kQueue;
  // Predicted time from its start until what its class requires before the deadline is there; 0 = nothing is predicted,
  // and only the deadline itself refuses it.
  Duration needed_time{};
  // Predicted time from its start to its end, other requests running beside it.
  Duration service_time{};
};

// What one plan decided. The caller commits it whole: first what ends and what is preempted, in this order, then what
// starts.
struct AdmissionPlan {
  struct Start {
    RequestKey key = 0;
    std::int64_t reserved_blocks = 0;
    bool resumed = false;
  };
  struct Ending {
    RequestKey key = 0;
    Refusal refusal;
  };
  std::vector<Ending>
      end;  // by key: timeouts, deadlines, cancels, refusals; running ones among them give back their blocks
  // In the order picked. Each gives back its blocks and waits, parked, or ends where `too_often` names it.
  std::vector<RequestKey> preempt;
  std::vector<Ending> too_often;  // of `preempt`
  std::vector<Start> admit;       // in the order started

  void Clear() {
    end.clear();
    preempt.clear();
    too_often.clear();
    admit.clear();
  }
};

}  // namespace berth
