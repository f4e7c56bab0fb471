// Refusals as values. A client's fault or a full queue is an answer, not an error of ours.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "berth/clock.h"

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
};

}  // namespace berth
