// Who is preempted so that a class gets what it was guaranteed.
#include <algorithm>

#include "admission/admission.h"
#include "base/check.h"
#include "base/planted_bug.h"

namespace berth {

bool Admission::ClaimIsMet(const RequestState& claimant, bool from_own_class) const {
  const ClassId c = claimant.request.service_class;
  return ledger_.FitsPool() && !ledger_.TouchesUnlent(c) && (!from_own_class || ledger_.WithinGuarantee(c));
}

// With the claimant attached: picks victims until its claim is met, then drops needless picks. On success victims_
// holds them and they stay detached; otherwise nothing has changed. `from_own_class`: the claimant is protected, and
// unprotected requests of its own class make room too until the class is within its guarantee.
bool Admission::Reclaim(RequestState* claimant, bool from_own_class) {
  const ClassId c = claimant->request.service_class;
  victims_.clear();
  while (!ClaimIsMet(*claimant, from_own_class)) {
    RequestState* victim = PickVictim(*claimant, from_own_class);
    if (victim == nullptr) {
      // Only what others keep back from lending is short: the guarantee goes first.
      if (ledger_.FitsPool() && (!from_own_class || ledger_.WithinGuarantee(c))) break;
      for (RequestState* v : victims_) ledger_.Attach(v->entry);
      victims_.clear();
      return false;
    }
    ledger_.Detach(victim->entry);
    victims_.push_back(victim);
  }
  const std::vector<RequestState*> picked = victims_;
  for (RequestState* victim : picked) {
    ledger_.Attach(victim->entry);
    if (ClaimIsMet(*claimant, from_own_class)) {
      std::erase(victims_, victim);
    } else {
      ledger_.Detach(victim->entry);
    }
  }
  return true;
}

RequestState* Admission::PickVictim(const RequestState& claimant, bool from_own_class) const {
  const ClassId own = claimant.request.service_class;
  const bool short_of_blocks = ledger_.ShortOfBlocks() || ledger_.TouchesUnlent(own);
  const bool short_of_slots = ledger_.ShortOfSlots() && !Planted(PlantedBug::kSlotGuaranteeIgnored);
  RequestState* best = nullptr;
  double best_cost = 0.0;
  const auto goes_before = [&](const RequestState& r, double cost) {
    if (best == nullptr || cost != best_cost) return best == nullptr || cost < best_cost;
    if (r.started_plan != best->started_plan) return r.started_plan > best->started_plan;
    return r.request.key > best->request.key;
  };
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    const auto c = static_cast<ClassId>(i);
    if (!class_policy(c).preemptible) continue;
    const bool gives = from_own_class && c == own
                           ? !ledger_.WithinGuarantee(c)
                           : (short_of_blocks && ledger_.BeyondBlocks(c)) || (short_of_slots && ledger_.BeyondSlots(c));
    if (!gives) continue;
    for (RequestState* r : classes_[i].running) {
      if ((r->is_protected && !Planted(PlantedBug::kProtectedPreempted)) || !r->started_preemptible ||
          r->started_plan == plan_number_)
        continue;
      if (std::ranges::find(victims_, r) != victims_.end()) continue;
      const std::int64_t freed = short_of_slots && !short_of_blocks ? r->entry.slots : ledger_.FreedBy(r->entry);
      const double cost = static_cast<double>(view_->RecomputeTokens(r->request.key)) /
                          static_cast<double>(std::max<std::int64_t>(1, freed));
      if (goes_before(*r, cost)) {
        best = r;
        best_cost = cost;
      }
    }
  }
  return best;
}

// REQUIRES: a victim that Reclaim left detached.
void Admission::Preempt(RequestState* r) {
  BERTH_CHECK(r->started_preemptible);
  const RequestKey key = r->request.key;
  plan_.preempt.push_back(key);
  ledger_.Attach(r->entry);
  if (r->preemptions >= r->max_preemptions) {
    Refusal refusal;
    refusal.reason = RefusalReason::kPreemptedTooOften;
    refusal.message = "was preempted max_preemptions times and is larger than its class's guarantee; retry later";
    refusal.limit_name = "max_preemptions";
    refusal.limit = r->max_preemptions;
    refusal.asked = r->preemptions + 1;
    refusal.retry_after = RetryAfter(r->request.service_class);
    plan_.too_often.push_back({key, std::move(refusal)});
    RefundRate(*r);
    EndRunning(r);
    return;
  }
  DetachRunning(r);
  ledger_.DropShares(&r->entry);
  release_schedule_.erase({r->end_step, key});
  ClassState& members = classes_[Index(r->request.service_class)];
  members.running[Index(r->running_index)] = members.running.back();
  members.running[Index(r->running_index)]->running_index = r->running_index;
  members.running.pop_back();
  SettleService(r);
  CountRunning(*r, -1.0);
  r->phase = RequestState::Phase::kParked;
  r->parked_plan = plan_number_;
  r->parked_since = now_;
  ++r->preemptions;
  if (r->preemptions >= r->max_preemptions && CanBeProtected(*r)) r->is_protected = true;
  EnterLine(r);
  UpdateExpiry(r);
  if (BeyondReach(*r)) {
    r->ending = true;
    r->ending_reason = RefusalReason::kPreemptedTooOften;
    ending_.push_back(key);
  }
}

}  // namespace berth
