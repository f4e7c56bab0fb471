// Who starts in a plan: guarantee claims first, then common space, then what fits behind a reserved start.
#include <algorithm>

#include "admission/admission.h"
#include "base/check.h"
#include "base/planted_bug.h"

namespace berth {

using Phase = RequestState::Phase;

// Looks up a waiting request's hits and what it would reserve, once per plan.
void Admission::Prepare(RequestState* r) {
  if (r->prepared_plan == plan_number_) return;
  r->prepared_plan = plan_number_;
  prepared_.push_back(r);
  r->entry.blocks = BlocksNow(*r);
  r->entry.slots = r->live_choices;
  cached_.clear();
  view_->FindCached(r->request.key, &cached_);
  for (const CachedBlock& hit : cached_) {
    // The view shows the state before this plan: a holder that the plan has preempted holds nothing any more.
    RequestState* holder = hit.holder == kNoRequest ? nullptr : Lookup(hit.holder);
    const bool holds = holder != nullptr && holder->phase == Phase::kRunning;
    ledger_.Share(&r->entry, hit.block, holds ? &holder->entry : nullptr);
  }
}

bool Admission::QuotaAllows(const RequestState& r, std::int64_t extra_blocks) const {
  const std::int64_t limit = tenant_policy(r.request.tenant).max_kv_blocks;
  return limit >= kUnlimited || tenants_[Index(r.request.tenant)].running_blocks + extra_blocks + BlocksNow(r) <= limit;
}

RequestState* Admission::First(ClassId c) {
  RequestState* first = nullptr;
  ++walk_number_;
  classes_[Index(c)].line.Walk([&](RequestState& r) {
    // What this plan preempted starts in the next one at the earliest, and nothing of its class before it.
    if (r.phase == Phase::kParked && r.parked_plan == plan_number_) return WaitingLine::Next::kStop;
    TenantState& tenant = tenants_[Index(r.request.tenant)];
    if (tenant.blocked_plan_walk == walk_number_) return WaitingLine::Next::kGoOn;
    if (!QuotaAllows(r)) {
      tenant.blocked_plan_walk = walk_number_;
      return WaitingLine::Next::kGoOn;
    }
    first = &r;
    return WaitingLine::Next::kStop;
  });
  return first;
}

bool Admission::MayStart(ClassId c) const {
  if (Planted(PlantedBug::kLostWakeUp) && !classes_[Index(c)].running.empty()) return false;
  return class_policy(c).stop != ClassStop::kHold && !classes_[Index(c)].line.empty();
}

void Admission::ClaimGuarantees() {
  for (bool again = true; again;) {
    again = false;
    for (const ClassId c : class_order_) {
      if (!MayStart(c)) continue;
      RequestState* r = First(c);
      if (r != nullptr && ClaimGuarantee(r)) again = true;
    }
  }
}

bool Admission::ClaimGuarantee(RequestState* r) {
  const ClassId c = r->request.service_class;
  RequestKey& refused_claim = classes_[Index(c)].refused_claim;
  refused_claim = kNoRequest;
  Prepare(r);
  if (r->is_protected && !ProtectedFitAlone(r)) return false;
  ledger_.Attach(r->entry);
  const bool entitled = r->is_protected || ledger_.WithinGuarantee(c);
  const bool starts =
      entitled && ((r->is_protected && ledger_.CommonSpaceAllows(c)) || Reclaim(r, /*from_own_class=*/r->is_protected));
  ledger_.Detach(r->entry);
  if (!starts) {
    if (entitled) refused_claim = r->request.key;
    return false;
  }
  for (RequestState* victim : victims_) Preempt(victim);
  victims_.clear();
  Start(r);
  return true;
}

// The class's running protected requests and this one, by themselves, stay within the guarantee.
bool Admission::ProtectedFitAlone(RequestState* r) {
  const ClassPolicy& policy = class_policy(r->request.service_class);
  std::vector<const LedgerEntry*> entries{&r->entry};
  std::int64_t slots = r->entry.slots;
  for (const RequestState* other : classes_[Index(r->request.service_class)].running) {
    if (!other->is_protected) continue;
    entries.push_back(&other->entry);
    slots += other->entry.slots;
  }
  return slots <= policy.slot_guarantee && ledger_.UsedAlone(entries) <= policy.kv_guarantee_blocks;
}

bool Admission::ShouldPromote(ClassId c) {
  RequestState* r = First(c);
  if (r == nullptr) return false;
  const Duration max_wait = class_policy(c).max_wait;
  const TimePoint since = r->phase == Phase::kQueued ? r->request.arrival : r->parked_since;
  if (now_ - since < max_wait - (now_ - since)) return false;
  const std::optional<ReservedStart> start = FindReservedStart(r);
  if (!start.has_value()) return false;
  const TimePoint at = now_ + step_time_ * (start->step - plan_number_);
  return at <= r->request.deadline && (r->phase == Phase::kParked || at < r->request.arrival + max_wait);
}

void Admission::TakeCommonSpace() {
  std::vector<ClassId> order;
  for (const ClassId c : class_order_) {
    if (MayStart(c) && ShouldPromote(c)) order.push_back(c);
  }
  const auto promoted = static_cast<std::ptrdiff_t>(order.size());
  for (const ClassId c : class_order_) {
    if (MayStart(c) && std::find(order.begin(), order.begin() + promoted, c) == order.begin() + promoted) {
      order.push_back(c);
    }
  }
  bound_.clear();
  for (std::ptrdiff_t i = 0; i < static_cast<std::ptrdiff_t>(order.size()); ++i) {
    const ClassId c = order[static_cast<std::size_t>(i)];
    RequestState* head = First(c);
    while (head != nullptr && StartFromCommonSpace(head)) head = First(c);
    if (head == nullptr) continue;
    if (i >= promoted && classes_[Index(c)].line.size() == 1) continue;
    std::optional<ReservedStart> start = FindReservedStart(head);
    if (start.has_value()) classes_[Index(c)].head_start = start->step;
    Backfill(c, head, start);
    if (i < promoted) bound_.push_back({head, std::move(start)});
  }
}

// No promoted head of another class starts later because of this request.
bool Admission::AllowedByBound(RequestState* r) {
  return std::ranges::all_of(bound_, [&](const BoundHead& b) {
    return b.head->request.service_class == r->request.service_class || LeavesReservedStart(r, b.head, b.start);
  });
}

bool Admission::StartFromCommonSpace(RequestState* r) {
  if (r->is_protected) return false;
  Prepare(r);
  ledger_.Attach(r->entry);
  const bool fits = ledger_.CommonSpaceAllows(r->request.service_class);
  ledger_.Detach(r->entry);
  if (!fits || !AllowedByBound(r)) return false;
  Start(r);
  return true;
}

void Admission::Backfill(ClassId c, RequestState* head, const std::optional<ReservedStart>& start) {
  window_.clear();
  classes_[Index(c)].line.Walk([&](RequestState& r) {
    window_.push_back(&r);
    return static_cast<int>(window_.size()) <= kBackfillWindow ? WaitingLine::Next::kGoOn : WaitingLine::Next::kStop;
  });
  // A tenant at its quota is passed over with everything of it that comes later, so what counts is the largest that
  // waits.
  std::vector<std::pair<TenantId, std::int64_t>> largest_before;
  for (std::size_t i = 0; i < window_.size(); ++i) {
    RequestState* r = window_[i];
    bool starts = false;
    auto largest = std::ranges::find(largest_before, r->request.tenant, &std::pair<TenantId, std::int64_t>::first);
    const std::int64_t before = largest == largest_before.end() ? 0 : largest->second;
    const std::int64_t blocks = BlocksNow(*r);
    const bool eligible = i > 0 && r != head && !r->is_protected &&
                          !(r->phase == Phase::kParked && r->parked_plan == plan_number_) &&
                          (Planted(PlantedBug::kParkedOvertaken) || r->phase != Phase::kQueued ||
                           !classes_[Index(c)].line.HasParked(r->request.tenant)) &&
                          QuotaAllows(*r, std::max<std::int64_t>(0, before - blocks));
    if (eligible) {
      Prepare(r);
      ledger_.Attach(r->entry);
      const bool fits = ledger_.CommonSpaceAllows(c);
      ledger_.Detach(r->entry);
      starts = fits && LeavesReservedStart(r, head, start) && AllowedByBound(r);
    }
    if (starts) {
      Start(r);
    } else if (largest == largest_before.end()) {
      largest_before.emplace_back(r->request.tenant, blocks);
    } else {
      largest->second = std::max(before, blocks);
    }
  }
}

void Admission::Start(RequestState* r) {
  const ClassId c = r->request.service_class;
  BERTH_CHECK(r->prepared_plan == plan_number_ && r->phase != Phase::kRunning);
  ClassState& members = classes_[Index(c)];
  LeaveLine(r);
  const bool resumed = r->phase == Phase::kParked;
  if (resumed) {
    r->parked_total += now_ - r->parked_since;
  } else {
    r->max_preemptions = class_policy(c).max_preemptions;
  }
  r->phase = Phase::kRunning;
  r->started_plan = plan_number_;
  r->started_preemptible = class_policy(c).preemptible;
  r->running_index = static_cast<std::int32_t>(members.running.size());
  members.running.push_back(r);
  AttachRunning(r);
  const std::int64_t steps = view_->StepsToFinish(r->request.key, static_cast<std::int64_t>(r->entry.shares.size()));
  r->end_step = plan_number_ + steps;
  release_schedule_.insert({r->end_step, r->request.key});
  CountRunning(*r, 1.0);
  UpdateExpiry(r);
  r->used_since = now_;
  r->charged_block_seconds = static_cast<double>(r->entry.blocks) * ToSeconds(step_time_ * steps);
  members.line.Charge(r->request.tenant, r->charged_block_seconds / tenant_policy(r->request.tenant).weight);
  plan_.admit.push_back({r->request.key, r->entry.blocks, resumed});
}

}  // namespace berth
