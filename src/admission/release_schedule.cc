// When running requests will have left enough room for a waiting one, and whether another may go before it.
#include <algorithm>

#include "admission/admission.h"
#include "base/check.h"

namespace berth {

void Admission::DetachRunning(RequestState* r) {
  ledger_.Detach(r->entry);
  tenants_[Index(r->request.tenant)].running_blocks -= r->entry.blocks;
}

void Admission::AttachRunning(RequestState* r) {
  ledger_.Attach(r->entry);
  tenants_[Index(r->request.tenant)].running_blocks += r->entry.blocks;
}

// Now, where the head fits now; else the running requests end in order of their end steps until it fits. Nothing where
// it never does.
std::optional<Admission::ReservedStart> Admission::FindReservedStart(RequestState* head) {
  const ClassId c = head->request.service_class;
  Prepare(head);
  ReservedStart result;
  bool found = false;
  ledger_.Attach(head->entry);
  if (ledger_.CommonSpaceAllows(c) && QuotaAllows(*head)) {
    // Only others that go before it keep it from starting now.
    ledger_.Detach(head->entry);
    result.step = plan_number_;
    return result;
  }
  for (const auto& [end_step, key] : release_schedule_) {
    RequestState* r = Lookup(key);
    DetachRunning(r);
    result.gone.push_back(r);
    if ((ledger_.CommonSpaceAllows(c) || ledger_.WithinGuarantee(c)) && QuotaAllows(*head)) {
      result.step = end_step;
      found = true;
      break;
    }
  }
  for (RequestState* r : result.gone) AttachRunning(r);
  ledger_.Detach(head->entry);
  if (!found) return std::nullopt;
  return result;
}

// Whether `r`, started now, leaves the head's reserved start where it is: it ends by then, or fits beside the head.
bool Admission::LeavesReservedStart(RequestState* r, RequestState* head, const std::optional<ReservedStart>& start) {
  if (!start.has_value()) return true;
  // A waiting request is promised no hit.
  if (plan_number_ + view_->StepsToFinish(r->request.key, 0) <= start->step) return true;
  for (RequestState* gone : start->gone) DetachRunning(gone);
  ledger_.Attach(r->entry);
  ledger_.Attach(head->entry);
  const bool quota = r->request.tenant != head->request.tenant || QuotaAllows(*head, BlocksNow(*r));
  const bool leaves = quota && ledger_.CommonSpaceAllows(head->request.service_class);
  ledger_.Detach(head->entry);
  ledger_.Detach(r->entry);
  for (RequestState* gone : start->gone) AttachRunning(gone);
  return leaves;
}

}  // namespace berth
