// How requests end.
#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "admission/admission.h"

namespace berth {

using Phase = RequestState::Phase;

namespace {

// A policy change left its class less than the parked request needs.
bool EndsForPolicy(const RequestState& r) { return r.ending_reason == RefusalReason::kPreemptedTooOften; }

std::int64_t Milliseconds(Duration d) { return std::chrono::duration_cast<std::chrono::milliseconds>(d).count(); }

const char* EndingMessage(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::kCancelledByClient:
      return "cancelled by the client";
    case RefusalReason::kCancelledByOperator:
      return "an operator ended the request";
    case RefusalReason::kSlowReader:
      return "the client left the oldest message of the stream unread for too long; read faster, or ask for less";
    case RefusalReason::kDeadlineInfeasible:
      return "the request could no longer be useful before its deadline; allow more time or ask for less";
    case RefusalReason::kBackendFault:
      return "the device failed while it computed the request; retry on another server";
    default:
      return "ended by the server";
  }
}

}  // namespace

void Admission::Cancel(RequestKey key, RefusalReason reason) {
  settled_ = false;
  RequestState* r = Lookup(key);
  if (r == nullptr) return;
  if (!r->ending) ending_.push_back(key);
  // A policy change's word does not stand against the caller's: it may be taken back.
  if (!r->ending || EndsForPolicy(*r)) r->ending_reason = reason;
  r->ending = true;
}

void Admission::EndInfeasible(RequestKey key, TimePoint useful_at, std::int64_t computed_tokens) {
  Cancel(key, RefusalReason::kDeadlineInfeasible);
  RequestState* r = Lookup(key);
  if (r == nullptr || r->ending_reason != RefusalReason::kDeadlineInfeasible) return;
  r->useful_at = useful_at;
  r->computed_tokens = computed_tokens;
}

void Admission::UpdateExpiry(RequestState* r) {
  TimePoint expiry = r->request.deadline;
  const Duration max_wait = class_policy(r->request.service_class).max_wait;
  if (r->phase == Phase::kQueued) {
    expiry = std::min(expiry, r->request.arrival + max_wait);
    if (r->request.deadline != kNoDeadline) expiry = std::min(expiry, r->request.deadline - r->request.needed_time);
  } else if (r->phase == Phase::kParked && !CanBeProtected(*r)) {
    expiry = std::min(expiry, r->parked_since + (max_wait - r->parked_total));
  }
  if (expiry == r->expiry) return;
  if (r->expiry != kNoDeadline) expiries_.erase({r->expiry, r->request.key});
  if (expiry != kNoDeadline) expiries_.insert({expiry, r->request.key});
  r->expiry = expiry;
}

std::optional<Refusal> Admission::WhyItEnds(const RequestState& r) const {
  Refusal refusal;
  if (now_ >= r.request.deadline) {
    refusal.reason = RefusalReason::kDeadlineExceeded;
    refusal.message = "the request's deadline has passed";
    return refusal;
  }
  if (r.ending && !EndsForPolicy(r)) {
    refusal.reason = r.ending_reason;
    refusal.message = EndingMessage(r.ending_reason);
    if (r.ending_reason == RefusalReason::kDeadlineInfeasible) {
      refusal.predicted = r.useful_at - now_;
      refusal.remaining = r.request.deadline - now_;
      refusal.computed_tokens = r.computed_tokens;
    }
    return refusal;
  }
  if (r.phase == Phase::kQueued && r.request.deadline != kNoDeadline &&
      now_ >= r.request.deadline - r.request.needed_time) {
    const ClassState& c = classes_[Index(r.request.service_class)];
    // When nothing of its class runs or waits beside it, only a deadline that has passed refuses it.
    if (!c.running.empty() || c.line.size() > 1) return JudgeDeadline(r.request, now_);
  }
  if (now_ >= r.expiry) {
    const ClassPolicy& c = class_policy(r.request.service_class);
    if (r.phase == Phase::kQueued && now_ - r.request.arrival < c.max_wait) return std::nullopt;
    if (r.phase == Phase::kQueued) {
      refusal.reason = RefusalReason::kQueueTimeout;
      refusal.message = "waited longer than queue.max_wait of class '" + c.name + "'; retry later";
    } else {
      refusal.reason = RefusalReason::kPreemptedTooOften;
      refusal.message =
          "was preempted and then waited longer than queue.max_wait of class '" + c.name + "'; retry later";
    }
    refusal.limit_name = "queue.max_wait";
    refusal.limit = Milliseconds(c.max_wait);
    refusal.asked =
        Milliseconds(r.phase == Phase::kQueued ? now_ - r.request.arrival : r.parked_total + (now_ - r.parked_since));
    refusal.retry_after = RetryAfter(r.request.service_class);
    return refusal;
  }
  if (r.ending) return BeyondReachRefusal(r, r.ending_reason);
  return std::nullopt;
}

Refusal Admission::BeyondReachRefusal(const RequestState& r, RefusalReason reason) const {
  const ClassId c = r.request.service_class;
  Refusal refusal;
  refusal.reason = reason;
  refusal.message = "a policy change leaves class '" + class_policy(c).name +
                    "' or the tenant less than the request needs; ask for less or use another class";
  refusal.limit_name = "kv_blocks";
  refusal.limit = ledger_.ReachBlocks(c);
  refusal.asked = BlocksNow(r);
  if (refusal.asked > tenant_policy(r.request.tenant).max_kv_blocks) {
    refusal.limit_name = "max_kv";
    refusal.limit = tenant_policy(r.request.tenant).max_kv_blocks;
  } else if (refusal.asked <= refusal.limit) {
    refusal.limit_name = "running_sequences";
    refusal.limit = ledger_.ReachSlots(c);
    refusal.asked = r.live_choices;
  }
  return refusal;
}

void Admission::EndDue() {
  std::vector<RequestKey> due = std::move(ending_);
  ending_.clear();
  for (const auto& [time, key] : expiries_) {
    if (time > now_) break;
    due.push_back(key);
  }
  plan_.end = std::move(ended_between_plans_);
  ended_between_plans_.clear();
  std::ranges::sort(due);
  due.erase(std::unique(due.begin(), due.end()), due.end());
  for (const RequestKey key : due) {
    RequestState* r = Lookup(key);
    if (r == nullptr) continue;
    // A request that a policy change made too large may have become small enough again.
    if (r->ending && EndsForPolicy(*r) && !BeyondReach(*r)) r->ending = false;
    std::optional<Refusal> why = WhyItEnds(*r);
    if (!why.has_value()) continue;
    plan_.end.push_back({key, *std::move(why)});
    if (r->phase == Phase::kRunning) {
      RefundRate(*r);
      EndRunning(r);
    } else {
      EndWaiting(r);
    }
  }
}

void Admission::EndWaiting(RequestState* r) {
  LeaveLine(r);
  RefundRate(*r);
  Forget(r);
}

// A request that ends before it is complete pays for what it used: nothing, where it never started.
void Admission::RefundRate(const RequestState& r) {
  if (r.rate_tokens <= 0.0) return;
  const std::int64_t used = r.started_plan < 0 ? 0 : view_->UsedTokens(r.request.key);
  tenants_[Index(r.request.tenant)].rate.Refund(r.rate_tokens - static_cast<double>(used));
}

void Admission::EndRunning(RequestState* r) {
  DetachRunning(r);
  ledger_.DropShares(&r->entry);
  release_schedule_.erase({r->end_step, r->request.key});
  std::vector<RequestState*>& running = classes_[Index(r->request.service_class)].running;
  running[Index(r->running_index)] = running.back();
  running[Index(r->running_index)]->running_index = r->running_index;
  running.pop_back();
  SettleService(r);
  CountRunning(*r, -1.0);
  Forget(r);
}

void Admission::Forget(RequestState* r) {
  if (r->prepared_plan == plan_number_) std::erase(prepared_, r);
  ledger_.DropShares(&r->entry);
  if (r->expiry != kNoDeadline) expiries_.erase({r->expiry, r->request.key});
  classes_[Index(r->request.service_class)].line.CountLive(r->request.tenant, -1);
  --tenants_[Index(r->request.tenant)].live_requests;
  requests_.erase(r->request.key);
}

}  // namespace berth
