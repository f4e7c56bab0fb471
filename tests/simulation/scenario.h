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
  enum class Kind : std::uint8_t { kArrival, kFault, kClockJump, kPolicy };
  Kind kind = Kind::kArrival;
  std::int64_t plan = 0;                  // before which it happens
  test::LoopRequest request;              // kArrival
  std::vector<std::int64_t> stops_after;  // kArrival: per choice, tokens after which it ends by itself
  std::int64_t cancel_delay = -1;         // kArrival: plans until its client cancels; -1 = never
  Duration jump{};                        // kClockJump
  Policy policy;                          // kPolicy
};

struct Scenario {
  std::uint64_t seed = 0;
  KvPoolShape pool;
  Policy policy;
  Duration step_swap_time{};  // what the backend takes for a block copied between the pool and the host's memory
  std::vector<Event> events;  // by plan

  std::int64_t arrivals() const;
};

// Tiny pools, one to four classes, bursts, cancels at every point, backend faults, clock jumps, groups, prefixes shared
// within and across classes and tenants, huge prompts and policy changes.
Scenario MakeScenario(std::uint64_t seed);

std::string Describe(const Event& event);

}  // namespace berth::simulation
