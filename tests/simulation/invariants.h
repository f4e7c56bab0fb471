// What must hold after every plan, recomputed from the block pool and the requests' blocks, not from admission's
// ledger.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "berth/policy.h"
#include "fakes/core_loop.h"

namespace berth::simulation {

class Invariants {
 public:
  explicit Invariants(test::CoreLoop* loop) : loop_(loop) {}

  // `tickets` = places in each class's queue that are taken and not yet filled.
  void SetPolicy(const Policy& policy, const std::vector<std::int64_t>& tickets);
  // Before a plan, once arrivals are in.
  void BeforePlan(const std::vector<std::int64_t>& tickets);
  // Between the plan's commit and its step.
  void AfterPlan(const AdmissionPlan& plan, std::int64_t plan_number);
  // After the step.
  void AfterStep();
  // Nothing is left.
  void AtEnd();

  // The first thing that did not hold: "I3: ...".
  const std::optional<std::string>& violation() const { return violation_; }

 private:
  // What an independent look at the running requests counts.
  struct Usage {
    std::vector<std::int64_t> slots;  // by class
    std::int64_t all_slots = 0;
    std::vector<std::int64_t> queued;         // by class
    std::vector<std::int64_t> queued_tokens;  // by class
    std::vector<std::int64_t> parked;         // by class
  };
  struct Holder {
    RequestKey key = 0;
    ClassId c = 0;
    std::set<BlockId> held;  // as its tables name them
    std::int64_t reserved = 0;
    std::int64_t unspent = 0;
    std::int64_t slots = 0;
    bool may_be_preempted = false;
  };
  struct Fate {
    bool preemptible_start = false;
    bool is_protected = false;  // when it last started
    std::int32_t max_preemptions = 0;
    std::int64_t preemptions = 0;
    std::int64_t parked_plan = -1;  // while parked
  };

  void Bad(const std::string& invariant, const std::string& what);
  Usage Count() const;
  std::vector<Holder> Holders() const;
  // Blocks that the holders which `use` accepts have or may still take.
  template <typename Use>
  static std::int64_t Blocks(const std::vector<Holder>& holders, const Use& use);
  std::int64_t Overage(const std::vector<std::int64_t>& used, bool slots) const;
  std::int64_t CommonBlocks() const;
  std::int64_t CommonSlots() const;
  void CheckQueues(const std::vector<std::int64_t>& tickets);
  void CheckLimits();
  void CheckLoad();  // load_check.cc
  void CheckHostBlocks(bool after_step);
  void CheckBook(const std::vector<Holder>& holders);
  void CheckFates(const AdmissionPlan& plan);
  void CheckStopped(const AdmissionPlan::Start& start);
  bool FitsGuarantee(const RequestState& r) const;
  void CheckOvertaking(const AdmissionPlan& plan);
  void CheckUnlent(const AdmissionPlan& plan);
  void CheckGuarantees();
  bool DebtExplains(const RequestState& first, const std::set<BlockId>& hits);

  test::CoreLoop* loop_;
  Policy policy_;
  std::int64_t plan_ = 0;
  std::vector<std::int64_t> used_before_;
  std::vector<std::int64_t> queued_before_;  // tickets included
  std::vector<std::int64_t> queued_tokens_before_;
  std::int64_t server_queued_before_ = 0;
  std::int64_t slots_before_ = 0;
  std::int64_t overage_before_ = 0;
  std::int64_t slot_overage_before_ = 0;
  std::map<RequestKey, Fate> fates_;
  std::map<ClassId, RequestKey> owed_;  // first in its class, within the guarantee, not started by the last plan
  int idle_plans_ = 0;
  std::optional<std::string> violation_;
};

}  // namespace berth::simulation
