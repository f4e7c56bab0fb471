#include "engine/refusals.h"

#include <chrono>
#include <utility>

namespace berth {
namespace {

// When a place in the queue, or another server, is worth another try.
constexpr Duration kRetryAfter = std::chrono::seconds(1);

Refusal Make(RefusalReason reason, std::string message) {
  Refusal refusal;
  refusal.reason = reason;
  refusal.message = std::move(message);
  return refusal;
}

}  // namespace

Refusal InvalidRequest(std::string field, std::string message) {
  Refusal refusal = Make(RefusalReason::kInvalidRequest, std::move(message));
  refusal.field = std::move(field);
  return refusal;
}

Refusal TooLarge(const char* limit_name, std::int64_t limit, std::int64_t asked, std::string message) {
  Refusal refusal = Make(RefusalReason::kRequestTooLarge, std::move(message));
  refusal.limit_name = limit_name;
  refusal.limit = limit;
  refusal.asked = asked;
  return refusal;
}

Refusal OneChoiceOnly(std::int32_t n) {
  Refusal refusal = Make(RefusalReason::kUnimplemented, "sampling.n is " + std::to_string(n) +
                                                            ", but one choice a request is all that is served: leave "
                                                            "it out and send the request once per choice");
  refusal.field = "sampling.n";
  return refusal;
}

Refusal QueueFull(std::int64_t max_queued_requests) {
  Refusal refusal = Make(RefusalReason::kQueueFull, "the queue is full: " + std::to_string(max_queued_requests) +
                                                        " requests wait (max_queued_requests); try again later");
  refusal.limit_name = "max_queued_requests";
  refusal.limit = max_queued_requests;
  refusal.asked = max_queued_requests + 1;
  refusal.retry_after = kRetryAfter;
  return refusal;
}

Refusal DuplicateRequestId(const std::string& request_id) {
  Refusal refusal = Make(RefusalReason::kDuplicateRequestId,
                         "request_id \"" + request_id + "\" is in use by a request that has not ended: choose another");
  refusal.field = "request_id";
  return refusal;
}

Refusal Draining() {
  Refusal refusal = Make(RefusalReason::kDraining, "the server is shutting down: send the request to another one");
  refusal.retry_after = kRetryAfter;
  return refusal;
}

Refusal CancelledByClient() { return Make(RefusalReason::kCancelledByClient, "the client cancelled the request"); }

Refusal DeadlineExceeded() {
  return Make(RefusalReason::kDeadlineExceeded,
              "the deadline passed before the answer: allow more time, or retry when there is less load");
}

Refusal BackendFault(const absl::Status& status) {
  return Make(RefusalReason::kBackendFault, "the backend failed (" + std::string(status.message()) +
                                                "): the request's output is lost, send it again");
}

}  // namespace berth
