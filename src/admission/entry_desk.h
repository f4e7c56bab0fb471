// The first half of a verdict, before the prompt is tokenized: who may stand in a class's queue at all.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "berth/admission.h"
#include "berth/clock.h"
#include "berth/policy.h"
#include "berth/units.h"

namespace berth {

// What a policy says to a tenant that asks for a class: unknown, not allowed, or stopped. Asked by the desk, and again
// by Admission, since tokenizing lies between.
std::optional<Refusal> JudgeClass(const Policy& policy, ClassId c, TenantId tenant);

// Counts the places of each class's queue: tickets given out, and what waits or is parked. A request takes its place
// with Enter and keeps it until it starts or ends, so that however many arrive at once no bound is exceeded. Its own
// state alone, so that the engine can guard it with one short lock while Admission plans. Deterministic, not
// thread-safe.
class EntryDesk {
 public:
  explicit EntryDesk(const Policy& policy);

  // As Admission::SetPolicy. Places taken stay taken.
  void SetPolicy(const Policy& policy);
  // Newcomers are refused with DRAINING from now on.
  void StartDraining() { draining_ = true; }

  // Takes a place in the class's queue, or says why not. In this order: draining, n, class known, allowed, not stopped,
  // duplicate id, byte bound on length, queue bound.
  std::optional<Refusal> Enter(const Arrival& arrival);
  // What Enter would say.
  std::optional<Refusal> Judge(const Arrival& arrival) const;
  // The place is free again: the ticket was not used, or the request was refused, started, or ended while it waited.
  void Leave(ClassId c);
  // A preempted request waits again, beyond the bound if need be.
  void Park(ClassId c);

  // What a caller refused for the class's sake is told; from Admission::RetryAfter after each plan.
  void SetRetryAfter(ClassId c, Duration retry_after);

  std::int64_t places_taken(ClassId c) const { return classes_[static_cast<std::size_t>(c)].places_taken; }

 private:
  struct ClassState {
    std::int64_t places_taken = 0;
    Duration retry_after{};
  };

  std::optional<Refusal> JudgeRequest(const Arrival& arrival) const;

  Policy policy_;
  std::vector<ClassState> classes_;
  bool draining_ = false;
};

}  // namespace berth
