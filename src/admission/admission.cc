#include "admission/admission.h"

#include <algorithm>
#include <numeric>

#include "admission/demand.h"
#include "base/check.h"
#include "base/planted_bug.h"

namespace berth {

using Phase = RequestState::Phase;

Admission::Admission(const KvPoolShape& pool, const Policy& policy)
    : block_tokens_(pool.block_tokens), ledger_(pool.num_blocks, policy), sheddable_(ShedOrder{&policy_}) {
  SetPolicy(policy);
}

Admission::~Admission() = default;

void Admission::SetPolicy(const Policy& policy) {
  settled_ = false;
  sheddable_.clear();  // its order depends on the policy
  policy_ = policy;
  ledger_.SetPolicy(policy);
  classes_.resize(policy.classes.size());
  tenants_.resize(policy.tenants.size());
  for (std::size_t t = 0; t < tenants_.size(); ++t) tenants_[t].rate.SetPolicy(policy.tenants[t]);
  for (ClassState& c : classes_) c.line.GrowTenants(tenants_.size());
  class_order_.resize(policy.classes.size());
  std::iota(class_order_.begin(), class_order_.end(), 0);
  std::ranges::stable_sort(class_order_, std::greater<>(), [&](ClassId c) { return class_policy(c).priority; });

  std::vector<RequestState*> refused;
  for (ClassState& c : classes_) c.waiting_step_tokens = 0;
  for (auto& [key, r] : requests_) {
    if (r->phase == Phase::kRunning) continue;
    classes_[Index(r->request.service_class)].waiting_step_tokens +=
        std::min(r->tokens_to_compute, policy_.max_batched_tokens);
    if (r->sheddable) sheddable_.insert(r.get());
    if (r->phase == Phase::kParked && r->preemptions >= r->max_preemptions) r->is_protected = CanBeProtected(*r);
    UpdateExpiry(r.get());
    const bool drained = class_policy(r->request.service_class).stop == ClassStop::kDrain;
    if (r->phase == Phase::kQueued && (BeyondReach(*r) || drained)) {
      refused.push_back(r.get());
    } else if (BeyondReach(*r) && !r->ending) {
      r->ending = true;
      r->ending_reason = RefusalReason::kPreemptedTooOften;
      ending_.push_back(key);
    }
  }
  for (RequestState* r : refused) {
    Refusal refusal = BeyondReachRefusal(*r, RefusalReason::kRequestTooLarge);
    if (!BeyondReach(*r)) {
      refusal = Refusal();
      refusal.reason = RefusalReason::kClassOnHold;
      refusal.message = "class '" + class_policy(r->request.service_class).name + "' is draining; retry later";
      refusal.retry_after = RetryAfter(r->request.service_class);
    }
    ended_between_plans_.push_back({r->request.key, std::move(refusal)});
    EndWaiting(r);
  }
}

std::int64_t Admission::WorstBlocksOf(const AdmissionRequest& request) const {
  return WorstBlocks(request.prompt_tokens, request.max_output_tokens, request.n, block_tokens_);
}

std::int64_t Admission::BlocksNow(const RequestState& r) const {
  return WorstBlocks(r.request.prompt_tokens, r.request.max_output_tokens, r.live_choices, block_tokens_);
}

RequestState* Admission::Lookup(RequestKey key) {
  const auto found = requests_.find(key);
  return found == requests_.end() ? nullptr : found->second.get();
}

const RequestState* Admission::Find(RequestKey key) const {
  const auto found = requests_.find(key);
  return found == requests_.end() ? nullptr : found->second.get();
}

bool Admission::CanBeProtected(const RequestState& r) const {
  const ClassPolicy& c = class_policy(r.request.service_class);
  return BlocksNow(r) <= c.kv_guarantee_blocks && r.live_choices <= c.slot_guarantee;
}

bool Admission::BeyondReach(const RequestState& r) const {
  const ClassId c = r.request.service_class;
  return BlocksNow(r) > ledger_.ReachBlocks(c) || r.live_choices > ledger_.ReachSlots(c) ||
         BlocksNow(r) > tenant_policy(r.request.tenant).max_kv_blocks;
}

TimePoint Admission::WaitsSince(const RequestState& r) {
  return r.phase == Phase::kParked ? r.parked_since : r.request.arrival;
}

// In the sums over what waits; `sign` = 1 or -1.
void Admission::CountWaiting(const RequestState& r, std::int64_t sign) {
  ClassState& c = classes_[Index(r.request.service_class)];
  c.waiting_tokens += sign * (r.request.prompt_tokens + r.request.max_output_tokens);
  c.waiting_blocks += sign * BlocksNow(r);
  c.waiting_slots += sign * r.live_choices;
  c.waiting_step_tokens += sign * std::min(r.tokens_to_compute, policy_.max_batched_tokens);
  c.parked += r.phase == Phase::kParked ? sign : 0;
}

// A waiting request joins its class's line and every sum over what waits.
void Admission::EnterLine(RequestState* r) {
  ClassState& c = classes_[Index(r->request.service_class)];
  c.line.Add(r);
  r->tokens_to_compute = r->phase == Phase::kParked ? view_->UsedTokens(r->request.key) : r->request.prompt_tokens;
  CountWaiting(*r, 1);
  c.waiting_since.insert({WaitsSince(*r), r->request.key});
  r->waiting_block_seconds = static_cast<double>(BlocksNow(*r)) * ToSeconds(r->request.service_time);
  c.waiting_service.Insert({r->request.deadline, r->request.key}, r->waiting_block_seconds);
  if (r->phase != Phase::kQueued) return;
  ++queued_requests_;
  queued_tokens_ += r->request.prompt_tokens + r->request.max_output_tokens;
  r->sheddable = r->request.overload == Overload::kShedLowest;
  if (r->sheddable) sheddable_.insert(r);
}

void Admission::LeaveLine(RequestState* r) {
  ClassState& c = classes_[Index(r->request.service_class)];
  c.line.Remove(r);
  CountWaiting(*r, -1);
  c.waiting_since.erase({WaitsSince(*r), r->request.key});
  c.waiting_service.Erase({r->request.deadline, r->request.key});
  if (r->phase != Phase::kQueued) return;
  --queued_requests_;
  queued_tokens_ -= r->request.prompt_tokens + r->request.max_output_tokens;
  if (r->sheddable) sheddable_.erase(r);
  r->sheddable = false;
}

void Admission::CountRunning(const RequestState& r, double sign) {
  ClassState& c = classes_[Index(r.request.service_class)];
  const auto blocks = static_cast<double>(r.entry.blocks);
  c.running_blocks += sign * blocks;
  c.running_block_end_steps += sign * blocks * static_cast<double>(r.end_step);
}

void Admission::SettleService(RequestState* r) {
  r->used_block_seconds += static_cast<double>(r->entry.blocks) * ToSeconds(now_ - r->used_since);
  r->used_since = now_;
  classes_[Index(r->request.service_class)].line.Charge(
      r->request.tenant, (r->used_block_seconds - r->charged_block_seconds) / tenant_policy(r->request.tenant).weight);
  r->used_block_seconds = r->charged_block_seconds = 0.0;
}

const AdmissionPlan& Admission::Plan(TimePoint now, Duration step_time, const PoolView& view) {
  ++plan_number_;
  now_ = now;
  step_time_ = step_time;
  view_ = &view;
  plan_.Clear();
  EndDue();
  for (ClassState& c : classes_) {
    c.line.Freeze();
    c.refused_claim = kNoRequest;
  }
  ClaimGuarantees();
  TakeCommonSpace();
  RefuseWhatDidNotStart();
  DropPreparations();
  view_ = nullptr;
  settled_ = plan_.end.empty() && plan_.preempt.empty() && plan_.admit.empty();
  return plan_;
}

TimePoint Admission::QuietUntil() {
  if (!settled_) return TimePoint::min();
  TimePoint until = expiries_.empty() ? TimePoint::max() : expiries_.begin()->first;
  for (ClassId c = 0; c < std::ssize(policy_.classes); ++c) {
    const RequestState* r = First(c);
    if (r == nullptr) continue;
    // Half its max_wait before it is promoted; and what is promoted depends on the time.
    const TimePoint since = r->phase == Phase::kQueued ? r->request.arrival : r->parked_since;
    const TimePoint promoted = since + class_policy(c).max_wait / 2;
    until = std::min(until, promoted <= now_ ? TimePoint::min() : promoted);
  }
  return until;
}

void Admission::RefuseWhatDidNotStart() {
  for (const RequestKey key : rejecting_) {
    RequestState* r = Lookup(key);
    if (r == nullptr || r->phase != Phase::kQueued) continue;
    plan_.end.push_back({key, CapacityRefusal(r)});
    EndWaiting(r);
  }
  rejecting_.clear();
}

Refusal Admission::CapacityRefusal(RequestState* r) {
  const ClassId c = r->request.service_class;
  Prepare(r);
  Refusal refusal = CapacityLimit(c, r->entry.blocks, r->entry.slots);
  const auto start = FindReservedStart(r);
  refusal.retry_after = start.has_value() ? step_time_ * (start->step - plan_number_) : RetryAfter(c);
  return refusal;
}

// The limit that a request of so many blocks and slots meets now.
Refusal Admission::CapacityLimit(ClassId c, std::int64_t blocks, std::int64_t slots) const {
  Refusal refusal;
  refusal.reason = RefusalReason::kKvCapacityExhausted;
  const std::int64_t free_slots = policy_.max_running_sequences - ledger_.pool_slots();
  if (slots > free_slots) {
    refusal.limit_name = "running_sequences";
    refusal.limit = policy_.max_running_sequences;
    refusal.asked = slots;
  } else if (ledger_.used(c) + blocks > class_policy(c).ceiling_blocks()) {
    refusal.limit_name = "class_kv_blocks";
    refusal.limit = class_policy(c).ceiling_blocks();
    refusal.asked = blocks;
  } else {
    refusal.limit_name = "kv_blocks";
    refusal.limit = ledger_.pool_blocks();
    refusal.asked = blocks;
  }
  refusal.message = "class '" + class_policy(c).name + "' has no room for the request now; retry later";
  return refusal;
}

void Admission::DropPreparations() {
  for (RequestState* r : prepared_) {
    if (r->phase != Phase::kRunning) ledger_.DropShares(&r->entry);
  }
  prepared_.clear();
}

void Admission::Finish(RequestKey key, TimePoint now, std::int64_t tokens) {
  RequestState* r = Lookup(key);
  BERTH_CHECK(r != nullptr && r->phase == Phase::kRunning);
  now_ = now;
  settled_ = false;
  if (r->rate_tokens > 0.0) {
    tenants_[Index(r->request.tenant)].rate.Refund(r->rate_tokens - static_cast<double>(tokens));
  }
  EndRunning(r);
}

std::int64_t Admission::BlocksAfterEndChoice(RequestKey key) const {
  const RequestState* r = Find(key);
  BERTH_CHECK(r != nullptr && r->phase == Phase::kRunning && r->live_choices > 1);
  return WorstBlocks(r->request.prompt_tokens, r->request.max_output_tokens, r->live_choices - 1, block_tokens_);
}

std::int64_t Admission::EndChoice(RequestKey key, std::span<const BlockId> released, TimePoint now) {
  const std::int64_t blocks = BlocksAfterEndChoice(key);
  settled_ = false;
  RequestState* r = Lookup(key);
  r->used_block_seconds += static_cast<double>(r->entry.blocks) * ToSeconds(now - r->used_since);
  r->used_since = now;
  tenants_[Index(r->request.tenant)].running_blocks += blocks - r->entry.blocks;
  --r->live_choices;
  CountRunning(*r, -1.0);
  const std::int64_t slots = r->live_choices + (Planted(PlantedBug::kChoiceKeepsItsSlot) ? 1 : 0);
  ledger_.Shrink(&r->entry, blocks, slots, released);
  CountRunning(*r, 1.0);
  return blocks;
}

void Admission::SetEndStep(RequestKey key, std::int64_t end_step) {
  RequestState* r = Lookup(key);
  BERTH_CHECK(r != nullptr && r->phase == Phase::kRunning);
  if (r->end_step == end_step) return;
  settled_ = false;
  release_schedule_.erase({r->end_step, key});
  release_schedule_.insert({end_step, key});
  CountRunning(*r, -1.0);
  r->end_step = end_step;
  CountRunning(*r, 1.0);
}

}  // namespace berth
