// Who is let in: the order of checks, cheapest first, and the limit that a refusal names.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "admission/admission.h"
#include "admission/entry_desk.h"
#include "admission/refusals.h"
#include "base/check.h"
#include "base/planted_bug.h"

namespace berth {
std::optional<Refusal> Admission::Submit(const AdmissionRequest& request, TimePoint now) {
  const ClassId c = request.service_class;
  if (auto refusal = Judge(request, now)) return refusal;
  TenantState& tenant = tenants_[Index(request.tenant)];
  const double rate_tokens = tenant.rate.limits() ? RateTokens(request) : 0.0;
  BERTH_CHECK(!tenant.rate.Take(RateTokens(request), now).has_value());
  ShedFor(request);
  settled_ = false;

  auto state = std::make_unique<RequestState>();
  RequestState* r = state.get();
  r->request = request;
  r->live_choices = request.n;
  r->rate_tokens = rate_tokens;
  r->entry.service_class = c;
  BERTH_CHECK(requests_.emplace(request.key, std::move(state)).second);
  classes_[Index(c)].line.CountLive(request.tenant, 1);
  EnterLine(r);
  ++tenant.live_requests;
  UpdateExpiry(r);
  if (request.overload == Overload::kReject) rejecting_.push_back(request.key);
  return std::nullopt;
}

std::optional<Refusal> Admission::Judge(const AdmissionRequest& request, TimePoint now) const {
  // The policy may have changed since the desk let the request in.
  if (auto refusal = JudgeClass(policy_, request.service_class, request.tenant)) {
    if (refusal->reason == RefusalReason::kClassOnHold) refusal->retry_after = RetryAfter(request.service_class);
    return refusal;
  }
  if (auto refusal = JudgeSize(request)) return refusal;
  const TenantPolicy& policy = tenant_policy(request.tenant);
  const TenantState& tenant = tenants_[Index(request.tenant)];
  if (tenant.live_requests >= policy.max_concurrent_requests) {
    Refusal refusal = LimitRefusal(RefusalReason::kTenantQuotaExceeded,
                                   NamedTenant(policy) + " has its most concurrent requests; retry when one ended",
                                   "max_concurrent_requests", policy.max_concurrent_requests, tenant.live_requests + 1);
    refusal.retry_after = RetryAfter(request.service_class);
    return refusal;
  }
  TokenRate rate = tenant.rate;
  if (const auto wait = rate.Take(RateTokens(request), now)) {
    Refusal refusal =
        LimitRefusal(RefusalReason::kTenantQuotaExceeded, NamedTenant(policy) + " is over its token rate; retry later",
                     "tokens_per_minute", static_cast<std::int64_t>(*policy.tokens_per_minute),
                     static_cast<std::int64_t>(RateTokens(request)));
    refusal.retry_after = *wait;
    return refusal;
  }
  if (auto refusal = JudgeDeadline(request, now)) return refusal;
  return JudgeQueue(request);
}

// What no waiting could change.
std::optional<Refusal> Admission::JudgeSize(const AdmissionRequest& request) const {
  const ClassId c = request.service_class;
  const ClassPolicy& policy = class_policy(c);
  const TenantPolicy& tenant = tenant_policy(request.tenant);
  const std::int64_t blocks = WorstBlocksOf(request);
  const std::int64_t tokens = request.prompt_tokens + request.max_output_tokens;
  const auto too_large = [&](const std::string& what, const char* limit_name, std::int64_t limit, std::int64_t asked) {
    return LimitRefusal(RefusalReason::kRequestTooLarge, what + "; ask for less or use another class", limit_name,
                        limit, asked);
  };
  const std::string of_class = " of class '" + policy.name + "'";
  if (tokens > policy.max_sequence_tokens) {
    return too_large("prompt and output are longer than a sequence" + of_class + " may be", "max_sequence_tokens",
                     policy.max_sequence_tokens, tokens);
  }
  if (request.max_output_tokens > policy.max_output_tokens) {
    return too_large("max_output_tokens is more than a request" + of_class + " may ask for", "max_output_tokens",
                     policy.max_output_tokens, request.max_output_tokens);
  }
  if (blocks > ledger_.ReachBlocks(c)) {
    return too_large("the request needs more KV blocks than one" + of_class + " can ever have", "kv_blocks",
                     ledger_.ReachBlocks(c), blocks);
  }
  if (request.n > ledger_.ReachSlots(c)) {
    return too_large("n is more than the sequences that a request" + of_class + " can ever have", "running_sequences",
                     ledger_.ReachSlots(c), request.n);
  }
  if (blocks > tenant.max_kv_blocks) {
    return too_large("the request needs more KV blocks than " + NamedTenant(tenant) + " may reserve", "max_kv",
                     tenant.max_kv_blocks, blocks);
  }
  if (!tenants_[Index(request.tenant)].rate.CanEverPass(RateTokens(request))) {
    return too_large("the request is larger than the token burst of " + NamedTenant(tenant), "burst_tokens",
                     static_cast<std::int64_t>(tenant.burst_tokens), static_cast<std::int64_t>(RateTokens(request)));
  }
  return std::nullopt;
}

std::optional<Refusal> Admission::JudgeQueue(const AdmissionRequest& request) const {
  const ClassId c = request.service_class;
  const ClassPolicy& policy = class_policy(c);
  const ClassState& state = classes_[Index(c)];
  const std::int64_t tokens = request.prompt_tokens + request.max_output_tokens;
  Refusal refusal;
  if (tokens > policy.max_queued_tokens - state.waiting_tokens) {
    refusal = LimitRefusal(RefusalReason::kQueueFull,
                           "the queue of class '" + policy.name + "' holds its most tokens; retry later",
                           "queue.max_tokens", policy.max_queued_tokens, state.waiting_tokens + tokens);
  } else if (MakesRoom(request)) {
    return std::nullopt;
  } else {
    const bool shed = request.overload == Overload::kShedLowest;
    refusal = LimitRefusal(shed ? RefusalReason::kShed : RefusalReason::kQueueFull,
                           "the server's queues are full and nothing of lower priority waits; retry later",
                           "server.max_queued_requests", policy_.max_queued_requests, queued_requests_ + 1);
  }
  refusal.retry_after = RetryAfter(c);
  return refusal;
}

bool Admission::ShedOrder::operator()(const RequestState* a, const RequestState* b) const {
  const auto priority = [&](const RequestState* r) {
    return policy->classes[static_cast<std::size_t>(r->request.service_class)].priority;
  };
  if (priority(a) != priority(b)) return priority(a) < priority(b);
  if (a->request.deadline != b->request.deadline) return a->request.deadline > b->request.deadline;
  return a->request.key > b->request.key;
}

// The server's own bounds leave room, if need be once entries that go before this one are shed.
bool Admission::MakesRoom(const AdmissionRequest& request) const {
  std::int64_t requests = queued_requests_ + 1;
  std::int64_t tokens = queued_tokens_ + request.prompt_tokens + request.max_output_tokens;
  RequestState newcomer;
  newcomer.request = request;
  const bool may_be_shed = request.overload == Overload::kShedLowest;
  for (const RequestState* r : sheddable_) {
    if (requests <= policy_.max_queued_requests && tokens <= policy_.max_queued_tokens) break;
    if (may_be_shed && !sheddable_.key_comp()(r, &newcomer)) break;
    --requests;
    tokens -= r->request.prompt_tokens + r->request.max_output_tokens;
  }
  return requests <= policy_.max_queued_requests && tokens <= policy_.max_queued_tokens;
}

void Admission::ShedFor(const AdmissionRequest& request) {
  const std::int64_t tokens = request.prompt_tokens + request.max_output_tokens;
  while (queued_requests_ + 1 > policy_.max_queued_requests || queued_tokens_ + tokens > policy_.max_queued_tokens) {
    BERTH_CHECK(!sheddable_.empty());
    RequestState* shed = *sheddable_.begin();
    Refusal refusal = LimitRefusal(RefusalReason::kShed, "the server's queues are full; retry later",
                                   "server.max_queued_requests", policy_.max_queued_requests, queued_requests_ + 1);
    refusal.retry_after = RetryAfter(shed->request.service_class);
    ended_between_plans_.push_back({shed->request.key, std::move(refusal)});
    EndWaiting(shed);
  }
}

// Prompt once, output for each sequence.
double Admission::RateTokens(const AdmissionRequest& request) {
  return static_cast<double>(request.prompt_tokens + request.n * request.max_output_tokens);
}

Duration Admission::RetryAfter(ClassId c) const {
  const std::optional<std::int64_t>& start = classes_[Index(c)].head_start;
  return step_time_ * std::max<std::int64_t>(1, start.has_value() ? *start - plan_number_ : 1);
}

// Reserved block-seconds ahead of the request in its class ÷ the blocks that the class can reach.
Duration Admission::PredictedWait(const AdmissionRequest& request) const {
  const ClassId c = request.service_class;
  const ClassState& state = classes_[Index(c)];
  const auto blocks = static_cast<double>(WorstBlocksOf(request));
  const auto reach = static_cast<double>(std::max<std::int64_t>(1, ledger_.ReachBlocks(c)));
  const double waiting = state.waiting_service.SumBefore({request.deadline, request.key});
  if (waiting <= 0.0 && static_cast<double>(ledger_.used(c)) + blocks <= reach &&
      static_cast<double>(ledger_.pool_used()) + blocks <= static_cast<double>(ledger_.pool_blocks())) {
    return Duration(0);
  }
  const double steps_left = state.running_block_end_steps - state.running_blocks * static_cast<double>(plan_number_);
  const double ahead = waiting + std::max(0.0, steps_left) * ToSeconds(step_time_);
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::min(1e6, ahead / reach)));
}

std::optional<Refusal> Admission::JudgeDeadline(const AdmissionRequest& request, TimePoint now) const {
  if (request.deadline == kNoDeadline) return std::nullopt;
  const Duration remaining = request.deadline - now;
  Refusal refusal;
  refusal.remaining = remaining;
  if (remaining <= Duration(0)) {
    refusal.reason = RefusalReason::kDeadlineExceeded;
    refusal.message = "the request's deadline has passed";
    return refusal;
  }
  if (request.needed_time <= Duration(0)) return std::nullopt;  // nothing was predicted
  const ClassState& state = classes_[Index(request.service_class)];
  if (state.running.empty() && state.line.empty()) return std::nullopt;  // a bad prediction must not lock the door
  const Duration predicted = PredictedWait(request) + request.needed_time;
  if (predicted <= remaining) return std::nullopt;
  refusal.reason = RefusalReason::kDeadlineInfeasible;
  refusal.message = "the request could not be useful before its deadline; allow more time or ask for less";
  refusal.predicted = predicted;
  return refusal;
}

}  // namespace berth
