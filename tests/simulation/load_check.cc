// What admission says of the load, counted again.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "admission/demand.h"
#include "berth/metrics.h"
#include "invariants.h"

namespace berth::simulation {

void Invariants::CheckLoad() {
  LoadSnapshot load;
  loop_->admission().FillLoad(&load);
  LoadSnapshot counted;
  counted.classes.resize(policy_.classes.size());
  std::map<std::pair<ClassId, TenantId>, std::int64_t> queued;
  for (const test::CoreLoop::View& view : loop_->Views()) {
    const RequestState* r = loop_->admission().Find(view.key);
    if (r == nullptr) continue;  // ended between two plans
    ClassSnapshot& c = counted.classes[static_cast<std::size_t>(view.request->service_class)];
    if (view.running) {
      ++c.running_requests;
      c.used_slots += view.live_choices;
      continue;
    }
    const bool parked = r->phase == RequestState::Phase::kParked;
    ++(parked ? c.parked_requests : c.queued_requests);
    if (!parked) ++queued[{view.request->service_class, view.request->tenant}];
    const TimePoint since = parked ? r->parked_since : r->request.arrival;
    c.waiting_since = std::min(c.waiting_since.value_or(since), since);
    c.waiting_slots += view.live_choices;
    c.waiting_blocks += WorstBlocks(r->request.prompt_tokens, r->request.max_output_tokens, r->live_choices,
                                    loop_->pool().shape().block_tokens);
    const std::int64_t tokens = parked ? loop_->scheduler().UsedTokens(view.key) : r->request.prompt_tokens;
    c.wanted_step_tokens += std::min(tokens, policy_.max_batched_tokens);
  }
  for (std::size_t i = 0; i < counted.classes.size(); ++i) {
    const ClassSnapshot& told = load.classes.at(i);
    ClassSnapshot c = counted.classes[i];
    c.used_blocks = loop_->pool().used_blocks(static_cast<ClassId>(i));
    const auto differ = [&](std::int64_t ClassSnapshot::*field) { return told.*field != c.*field; };
    for (const auto& [field, name] :
         {std::pair{&ClassSnapshot::running_requests, "running"}, std::pair{&ClassSnapshot::queued_requests, "queued"},
          std::pair{&ClassSnapshot::parked_requests, "parked"}, std::pair{&ClassSnapshot::used_blocks, "used blocks"},
          std::pair{&ClassSnapshot::used_slots, "used slots"},
          std::pair{&ClassSnapshot::waiting_blocks, "waiting blocks"},
          std::pair{&ClassSnapshot::waiting_slots, "waiting slots"},
          std::pair{&ClassSnapshot::wanted_step_tokens, "wanted tokens"}}) {
      if (differ(field)) Bad("load", std::string(name) + " of class " + std::to_string(i) + " are miscounted");
    }
    if (told.waiting_since != c.waiting_since)
      Bad("load", "nobody of class " + std::to_string(i) + " waits since then");
  }
  for (const TenantQueue& queue : load.queued) {
    const auto found = queued.find({queue.service_class, queue.tenant});
    if (found == queued.end() || found->second != queue.queued_requests) Bad("load", "a tenant's queue is miscounted");
    if (found != queued.end()) queued.erase(found);
  }
  if (!queued.empty()) Bad("load", "a tenant's queue is not told");
}

}  // namespace berth::simulation
