#include "engine/refusals.h"

#include <chrono>
#include <utility>

namespace berth {
namespace {

// When another server, or this one once it is back, is worth a try.
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

Refusal Draining() {
  Refusal refusal = Make(RefusalReason::kDraining, "the server is shutting down: send the request to another one");
  refusal.retry_after = kRetryAfter;
  return refusal;
}

Refusal DrainTimeout() {
  Refusal refusal =
      Make(RefusalReason::kDrainTimeout, "the server shut down before the request was done: send it to another one");
  refusal.retry_after = kRetryAfter;
  return refusal;
}

Refusal BackendFault(const absl::Status& status) {
  return Make(RefusalReason::kBackendFault, "the backend failed (" + std::string(status.message()) +
                                                "): the request's output is lost, send it again");
}

}  // namespace berth
