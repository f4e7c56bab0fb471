// Random workloads with faults, as plain data made from a seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "berth/kv.h"
#include "berth/policy.h"
#include "fakes/core_loop.h"

namespace berth::simulation {

struct Event {
  enum class Kind : std::uint8_t { kArrival, kFault, kClockJump, kPolicy, kDraining };
  Kind kind = Kind::kArrival;
  std::int64_t plan = 0;                  // before which it happens
  test::LoopRequest request;              // kArrival
  std::vector<std::int64_t> stops_after;  // kArrival: per choice, tokens after which it ends by itself
  std::int64_t tokenizing = 0;            // kArrival: plans between its ticket and its submission
  bool gives_ticket_back = false;         // kArrival: instead of submitting, as when its client has gone
  bool duplicate_id = false;              // kArrival: a live request has its id
  std::int64_t cancel_delay = -1;         // kArrival: plans from its submission until its client cancels; -1 = never
  Duration jump{};                        // kClockJump
  Policy policy;                          // kPolicy
};

struct Scenario {
  std::uint64_t seed = 0;
  KvPoolShape pool;
  Policy policy;
  Duration step_time{};  // what the backend takes for a step, and for each token in it
  Duration step_token_time{};
  Duration step_swap_time{};      // and for each block copied between the pool and the host's memory
  std::int64_t failing_swap = 0;  // the how many-th step with such copies fails; 0 = none
  std::int32_t max_steps_in_flight = 1;
  std::int64_t stop_lag = 0;  // plans until a choice that ends by itself is told to
  std::vector<Event> events;  // by plan

  std::int64_t arrivals() const;
};

// Tiny pools, one to four classes, bursts, cancels at every point, backend faults, clock jumps, groups whose choices
// end by themselves, prefixes shared within and across classes and tenants, huge prompts, quotas, requests that can
// never start, tickets that are held for a while or given back, policy changes (holds, drains, removed and added
// classes among them) and a server that drains.
Scenario MakeScenario(std::uint64_t seed);

std::string Describe(const Event& event);

}  // namespace berth::simulation
