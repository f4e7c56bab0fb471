#include "admission/entry_desk.h"

#include <algorithm>
#include <string>

#include "admission/refusals.h"
#include "base/check.h"
#include "base/index.h"
#include "base/planted_bug.h"

namespace berth {
namespace {

// Another server, or this one once it is back.
constexpr Duration kRetryAfterDrain = std::chrono::seconds(1);

Refusal FieldRefusal(RefusalReason reason, std::string message, const char* field) {
  Refusal refusal;
  refusal.reason = reason;
  refusal.message = std::move(message);
  refusal.field = field;
  return refusal;
}

}  // namespace

std::optional<Refusal> JudgeClass(const Policy& policy, ClassId c, TenantId tenant) {
  if (c < 0 || c >= std::ssize(policy.classes) || policy.classes[Index(c)].removed) {
    return FieldRefusal(RefusalReason::kUnknownClass, "the server has no such service class", "service_class");
  }
  const std::string& name = policy.classes[Index(c)].name;
  const TenantPolicy& asking = policy.tenants[Index(tenant)];
  if (asking.classes.has_value() && std::ranges::find(*asking.classes, c) == asking.classes->end()) {
    return FieldRefusal(RefusalReason::kClassNotAllowed, NamedTenant(asking) + " may not use class '" + name + "'",
                        "service_class");
  }
  if (policy.classes[Index(c)].stop == ClassStop::kNone) return std::nullopt;
  return FieldRefusal(RefusalReason::kClassOnHold,
                      "class '" + name + "' takes no new requests now; retry later or use another class", "");
}

EntryDesk::EntryDesk(const Policy& policy) { SetPolicy(policy); }

void EntryDesk::SetPolicy(const Policy& policy) {
  policy_ = policy;
  classes_.resize(policy.classes.size());
}

std::optional<Refusal> EntryDesk::Enter(const Arrival& arrival) {
  if (auto refusal = Judge(arrival)) return refusal;
  ++classes_[Index(arrival.service_class)].places_taken;
  return std::nullopt;
}

std::optional<Refusal> EntryDesk::Judge(const Arrival& arrival) const {
  if (auto refusal = JudgeRequest(arrival)) return refusal;
  const ClassState& state = classes_[Index(arrival.service_class)];
  const ClassPolicy& policy = policy_.classes[Index(arrival.service_class)];
  const std::int64_t places = state.places_taken - (Planted(PlantedBug::kBoundReadBeforeTicket) ? 1 : 0);
  if (places >= policy.max_queued_requests) {
    Refusal refusal = LimitRefusal(RefusalReason::kQueueFull,
                                   "the queue of class '" + policy.name + "' is full; retry later or use another class",
                                   "queue.max_requests", policy.max_queued_requests, state.places_taken + 1);
    refusal.retry_after = state.retry_after;
    return refusal;
  }
  return std::nullopt;
}

// Everything but whether a place is free.
std::optional<Refusal> EntryDesk::JudgeRequest(const Arrival& arrival) const {
  if (draining_) {
    Refusal refusal = FieldRefusal(RefusalReason::kDraining, "the server is draining; use another one", "");
    refusal.retry_after = kRetryAfterDrain;
    return refusal;
  }
  if (arrival.n < 1 || arrival.n > policy_.max_running_sequences) {
    Refusal refusal = LimitRefusal(RefusalReason::kInvalidRequest,
                                   "n is " + std::to_string(arrival.n) + ", but must be at least 1 and at most " +
                                       std::to_string(policy_.max_running_sequences) +
                                       ", the sequences that run at once; ask for fewer",
                                   "max_running_sequences", policy_.max_running_sequences, arrival.n);
    refusal.field = "sampling.n";
    return refusal;
  }
  const ClassId c = arrival.service_class;
  if (auto refusal = JudgeClass(policy_, c, arrival.tenant)) {
    if (refusal->reason == RefusalReason::kClassOnHold) refusal->retry_after = classes_[Index(c)].retry_after;
    return refusal;
  }
  const ClassPolicy& policy = policy_.classes[Index(c)];
  if (arrival.duplicate_id) {
    return FieldRefusal(RefusalReason::kDuplicateRequestId, "a live request has this request_id; use a new one",
                        "request_id");
  }
  if (arrival.least_prompt_tokens > policy.max_sequence_tokens - 1) {
    return LimitRefusal(RefusalReason::kRequestTooLarge,
                        "the prompt alone is longer than a sequence of class '" + policy.name + "' may be; shorten it",
                        "max_sequence_tokens", policy.max_sequence_tokens, arrival.least_prompt_tokens + 1);
  }
  return std::nullopt;
}

void EntryDesk::Leave(ClassId c) {
  BERTH_CHECK(classes_[Index(c)].places_taken > 0);
  --classes_[Index(c)].places_taken;
}

void EntryDesk::Park(ClassId c) { ++classes_[Index(c)].places_taken; }

void EntryDesk::SetRetryAfter(ClassId c, Duration retry_after) { classes_[Index(c)].retry_after = retry_after; }

}  // namespace berth
