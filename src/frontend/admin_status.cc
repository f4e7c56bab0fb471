#include "frontend/admin_status.h"

#include <algorithm>
#include <string>

#include "frontend/encode.h"

namespace berth {
namespace {

void EncodeClass(const ClassSnapshot& c, const LoadSnapshot& load, const ClassPolicy& policy, TimePoint now,
                 v1::ClassStatus* out) {
  out->set_name(policy.name);
  out->set_priority(policy.priority);
  out->set_preemptible(policy.preemptible);
  out->set_stop(EncodeStop(policy.stop));
  out->set_running_requests(c.running_requests);
  out->set_queued_requests(c.queued_requests);
  out->set_preempted_requests(c.parked_requests);
  out->set_max_queued_requests(policy.max_queued_requests);
  if (c.waiting_since.has_value()) {
    EncodeDuration(std::max(Duration::zero(), now - *c.waiting_since), out->mutable_oldest_wait());
  }
  out->set_guaranteed_blocks(policy.kv_guarantee_blocks);
  out->set_ceiling_blocks(policy.ceiling_blocks());
  out->set_used_blocks(c.used_blocks);
  out->set_borrowed_blocks(std::max<std::int64_t>(0, c.used_blocks - policy.kv_guarantee_blocks));
  out->set_debt_blocks(c.debt_blocks);
  out->set_guaranteed_slots(policy.slot_guarantee);
  out->set_used_slots(c.used_slots);
  const Pressure pressure = PressureOf(c, load);
  out->set_kv_pressure(pressure.kv);
  out->set_slots_pressure(pressure.slots);
  out->set_compute_pressure(pressure.compute);
}

}  // namespace

v1::ClassStopState EncodeStop(ClassStop stop) {
  switch (stop) {
    case ClassStop::kNone:
      return v1::CLASS_STOP_STATE_NONE;
    case ClassStop::kHold:
      return v1::CLASS_STOP_STATE_HOLD;
    case ClassStop::kDrain:
      return v1::CLASS_STOP_STATE_DRAIN;
  }
  return v1::CLASS_STOP_STATE_UNSPECIFIED;
}

void EncodeHealth(const Health& health, v1::ServerStatus* out) {
  switch (health.state) {
    case ServerState::kLoading:
      out->set_state(v1::SERVER_STATE_LOADING);
      break;
    case ServerState::kServing:
      out->set_state(v1::SERVER_STATE_SERVING);
      break;
    case ServerState::kDraining:
      out->set_state(v1::SERVER_STATE_DRAINING);
      break;
    case ServerState::kBackendFault:
      out->set_state(v1::SERVER_STATE_BACKEND_FAULT);
      break;
    case ServerState::kNoProgress:
      out->set_state(v1::SERVER_STATE_NO_PROGRESS);
      break;
  }
  out->set_why(health.why);
}

void EncodeLoad(const LoadSnapshot& load, const Policy& policy, TimePoint now, v1::ServerStatus* out) {
  for (std::size_t c = 0; c < std::min(load.classes.size(), policy.classes.size()); ++c) {
    const ClassSnapshot& of_class = load.classes[c];
    out->set_running_requests(out->running_requests() + of_class.running_requests);
    out->set_queued_requests(out->queued_requests() + of_class.queued_requests);
    out->set_preempted_requests(out->preempted_requests() + of_class.parked_requests);
    // One that is gone is shown for as long as something of it lives.
    const bool lives = of_class.running_requests + of_class.queued_requests + of_class.parked_requests > 0;
    if (!policy.classes[c].removed || lives) EncodeClass(of_class, load, policy.classes[c], now, out->add_classes());
  }
  out->set_free_blocks(load.free_blocks);
  out->set_cached_blocks(load.cached_blocks);
  out->set_held_blocks(load.held_blocks);
  out->set_unspent_blocks(load.unspent_blocks);
  out->set_used_slots(load.used_slots);
  out->set_max_slots(load.max_slots);
  out->set_pressure(PressureOf(load).highest());
}

void EncodeLiveRow(const LiveRow& row, const Policy& policy, const std::string& tenant, v1::LiveRequest* out) {
  out->set_request_id(row.ticket.request_id);
  out->set_tenant(tenant);
  out->set_service_class(policy.classes[static_cast<std::size_t>(row.ticket.service_class)].name);
  switch (row.state) {
    case LiveRow::State::kQueued:
      out->set_state(v1::REQUEST_STATE_QUEUED);
      break;
    case LiveRow::State::kPrefill:
      out->set_state(v1::REQUEST_STATE_PREFILL);
      break;
    case LiveRow::State::kDecode:
      out->set_state(v1::REQUEST_STATE_DECODE);
      break;
    case LiveRow::State::kPreempted:
      out->set_state(v1::REQUEST_STATE_PREEMPTED);
      break;
  }
  EncodeDuration(row.age, out->mutable_age());
  out->set_prompt_tokens(row.prompt_tokens);
  out->set_output_tokens(row.output_tokens);
  out->set_reserved_blocks(row.reserved_blocks);
  out->set_held_blocks(row.held_blocks);
  out->set_preemptions(row.preemptions);
  if (row.time_left.has_value()) EncodeDuration(*row.time_left, out->mutable_time_left());
}

}  // namespace berth
