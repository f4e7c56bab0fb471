// What the load looks like to admission.
#include "admission/admission.h"

namespace berth {

void Admission::FillLoad(LoadSnapshot* load) const {
  load->used_slots = ledger_.pool_slots();
  load->max_slots = policy_.max_running_sequences;
  load->step_token_budget = policy_.max_batched_tokens;
  load->classes.resize(classes_.size());
  load->queued.clear();
  for (ClassId c = 0; c < std::ssize(classes_); ++c) {
    const ClassState& state = classes_[Index(c)];
    ClassSnapshot& out = load->classes[Index(c)];
    out.running_requests = std::ssize(state.running);
    out.parked_requests = state.parked;
    out.queued_requests = state.line.size() - state.parked;
    out.waiting_since.reset();
    if (!state.waiting_since.empty()) out.waiting_since = state.waiting_since.begin()->first;
    out.used_blocks = ledger_.used(c);
    out.debt_blocks = ledger_.Debt(c);
    out.used_slots = ledger_.slots_used(c);
    out.reach_blocks = ledger_.ReachBlocks(c);
    out.reach_slots = ledger_.ReachSlots(c);
    out.waiting_blocks = state.waiting_blocks;
    out.waiting_slots = state.waiting_slots;
    out.wanted_step_tokens += state.waiting_step_tokens;
    const RequestState* refused = Find(state.refused_claim);
    out.guarantee_unmet = refused != nullptr && refused->phase != RequestState::Phase::kRunning;
    state.line.VisitQueued([&](TenantId tenant, std::int64_t requests) {
      load->queued.push_back({.service_class = c, .tenant = tenant, .queued_requests = requests});
    });
  }
}

}  // namespace berth
