// Decides who starts, who is preempted and who ends, plan by plan, so that every class gets the blocks and slots it was
// guaranteed. docs/ledger.md explains the rules; the public contract of a plan is in berth/admission.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "admission/deadline_sums.h"
#include "admission/ledger.h"
#include "admission/outlook.h"
#include "admission/request_state.h"
#include "admission/token_rate.h"
#include "admission/waiting_line.h"
#include "base/index.h"
#include "berth/admission.h"
#include "berth/clock.h"
#include "berth/kv.h"
#include "berth/metrics.h"
#include "berth/policy.h"
#include "berth/pool_view.h"

namespace berth {

// Deterministic: time comes in, decisions go out. Not thread-safe; the engine thread owns it.
//
// A plan's cost grows with what changed since the last one and with the classes, not with the length of the queues:
// each class's head and at most kBackfillWindow requests behind it are looked at.
class Admission {
 public:
  static constexpr int kBackfillWindow = 64;

  // REQUIRES: the policy is valid for the pool (ValidatePolicy).
  Admission(const KvPoolShape& pool, const Policy& policy);
  ~Admission();

  // The policy changes between two plans. What runs goes on; what is queued and can no longer start ends now, as
  // TakeEnded tells; what is parked and can no longer start ends in the next plan.
  // REQUIRES: valid for the pool; classes and tenants keep their index, those that are gone are marked removed.
  void SetPolicy(const Policy& policy);
  const Policy& policy() const { return policy_; }

  // The verdict on a request that EntryDesk let in: takes it in, to wait for the next plan, or says why not. Others may
  // be shed for it: TakeEnded tells them.
  // REQUIRES: the key is greater than every earlier one; n is what the desk let in.
  std::optional<Refusal> Submit(const AdmissionRequest& request, TimePoint now);

  // What Submit would say now, changing nothing.
  std::optional<Refusal> Judge(const AdmissionRequest& request, TimePoint now) const;

  // What would become of the request, were it submitted now. An opinion: prefix hits and the reserved starts of others
  // are not looked at. REQUIRES: as Submit. Changes nothing.
  RequestOutlook Foresee(const AdmissionRequest& request, TimePoint now);

  // What waited and was ended since the last plan by SetPolicy or shed by Submit. The next plan tells what was not
  // taken.
  std::vector<AdmissionPlan::Ending> TakeEnded() { return std::exchange(ended_between_plans_, {}); }

  // Ends the request in the next plan, waiting or running. Unknown keys are ignored.
  void Cancel(RequestKey key, RefusalReason reason = RefusalReason::kCancelledByClient);
  // The same for a running request that cannot be useful before its deadline any more: what it would have needed.
  void EndInfeasible(RequestKey key, TimePoint useful_at, std::int64_t computed_tokens);

  // One plan. `step_time` = what a step is predicted to take. The result is valid until the next call.
  const AdmissionPlan& Plan(TimePoint now, Duration step_time, const PoolView& view);

  // A running request ended by itself; its blocks are back. Of its tenant's token rate it is charged `tokens`.
  void Finish(RequestKey key, TimePoint now, std::int64_t tokens);
  // One choice of a running group ended: its blocks `released` are back and the reservation shrank.
  // Returns the new reservation.
  std::int64_t EndChoice(RequestKey key, std::span<const BlockId> released, TimePoint now);
  // The reservation that EndChoice will leave.
  std::int64_t BlocksAfterEndChoice(RequestKey key) const;
  // A running request will have ended by the plan with this number at the latest; plan_number() is the last plan made.
  void SetEndStep(RequestKey key, std::int64_t end_step);
  std::int64_t plan_number() const { return plan_number_; }

  // Until when plans would decide nothing, if nothing arrives, ends, is cancelled or changed meanwhile: the past, where
  // the next one may.
  TimePoint QuietUntil();
  // So many plans that decided nothing count as made. REQUIRES: they are over by QuietUntil().
  void SkipPlans(std::int64_t plans) { plan_number_ += plans; }

  // What a caller refused for the class's sake is told, as of the last plan: when the class's first request starts.
  Duration RetryAfter(ClassId c) const;
  // What a request would reserve.
  std::int64_t WorstBlocksOf(const AdmissionRequest& request) const;

  // What admission knows of the load, as of the last plan and of what has come and gone since. Of wanted_step_tokens it
  // adds what waits. Everything else of `load` stays as it is; allocates nothing where there is room.
  void FillLoad(LoadSnapshot* load) const;

  const Ledger& ledger() const { return ledger_; }
  std::int64_t waiting(ClassId c) const { return classes_[Index(c)].line.size(); }
  std::int64_t running(ClassId c) const { return static_cast<std::int64_t>(classes_[Index(c)].running.size()); }
  const RequestState* Find(RequestKey key) const;
  // The first waiting request of a class that its tenant's quota lets pass, in the order frozen by the last plan.
  const RequestState* FirstWaiting(ClassId c) { return First(c); }

 private:
  struct ClassState {
    WaitingLine line;
    std::vector<RequestState*> running;
    std::int64_t waiting_tokens = 0;  // prompt + output of what waits
    std::int64_t waiting_blocks = 0;
    std::int64_t waiting_slots = 0;
    std::int64_t waiting_step_tokens = 0;                      // of each at most one step's budget
    std::int64_t parked = 0;                                   // of what waits
    std::set<std::pair<TimePoint, RequestKey>> waiting_since;  // what waits, by when it began to
    RequestKey refused_claim = kNoRequest;  // fitted the guarantee and did not start in the last plan
    DeadlineSums waiting_service;           // block-seconds of what waits, by deadline
    double running_blocks = 0.0;            // sums over what runs: blocks, and blocks · end step
    double running_block_end_steps = 0.0;
    std::optional<std::int64_t> head_start;  // the head's reserved start in the last plan
  };
  struct TenantState {
    std::int64_t running_blocks = 0;  // reserved by its running requests, all classes
    std::int64_t live_requests = 0;
    TokenRate rate;
    std::int64_t blocked_plan_walk = -1;  // scratch of First: the walk in which its quota stopped it
  };
  // When a class's head can start at the latest, and which running requests will have ended by then.
  struct ReservedStart {
    std::int64_t step = 0;
    std::vector<RequestState*> gone;
  };
  // A promoted head whose reserved start binds the other classes.
  struct BoundHead {
    RequestState* head = nullptr;
    std::optional<ReservedStart> start;
  };

  const ClassPolicy& class_policy(ClassId c) const { return policy_.classes[Index(c)]; }
  const TenantPolicy& tenant_policy(TenantId t) const { return policy_.tenants[Index(t)]; }
  RequestState* Lookup(RequestKey key);

  // verdict.cc: who is let in.
  std::optional<Refusal> JudgeSize(const AdmissionRequest& request) const;
  std::optional<Refusal> JudgeQueue(const AdmissionRequest& request) const;
  std::optional<Refusal> JudgeDeadline(const AdmissionRequest& request, TimePoint now) const;
  bool MakesRoom(const AdmissionRequest& request) const;
  void ShedFor(const AdmissionRequest& request);
  Duration PredictedWait(const AdmissionRequest& request) const;
  static double RateTokens(const AdmissionRequest& request);

  // outlook.cc
  bool WouldStart(const AdmissionRequest& request);

  // admission.cc: requests' lives.
  static TimePoint WaitsSince(const RequestState& r);
  void CountWaiting(const RequestState& r, std::int64_t sign);
  void EnterLine(RequestState* r);
  void LeaveLine(RequestState* r);
  void CountRunning(const RequestState& r, double sign);
  bool CanBeProtected(const RequestState& r) const;
  bool BeyondReach(const RequestState& r) const;
  void UpdateExpiry(RequestState* r);
  void EndDue();
  std::optional<Refusal> WhyItEnds(const RequestState& r) const;
  Refusal BeyondReachRefusal(const RequestState& r, RefusalReason reason) const;
  void EndWaiting(RequestState* r);
  void EndRunning(RequestState* r);
  void RefundRate(const RequestState& r);
  void Forget(RequestState* r);
  void RefuseWhatDidNotStart();
  void SettleService(RequestState* r);
  void DropPreparations();
  Refusal CapacityRefusal(RequestState* r);
  Refusal CapacityLimit(ClassId c, std::int64_t blocks, std::int64_t slots) const;

  // plan.cc: who starts.
  std::int64_t BlocksNow(const RequestState& r) const;
  void Prepare(RequestState* r);
  RequestState* First(ClassId c);
  bool QuotaAllows(const RequestState& r, std::int64_t extra_blocks = 0) const;
  bool MayStart(ClassId c) const;
  void ClaimGuarantees();
  bool ClaimGuarantee(RequestState* r);
  bool ProtectedFitAlone(RequestState* r);
  void TakeCommonSpace();
  bool ShouldPromote(ClassId c);
  bool StartFromCommonSpace(RequestState* r);
  bool AllowedByBound(RequestState* r);
  void Backfill(ClassId c, RequestState* head, const std::optional<ReservedStart>& start);
  void Start(RequestState* r);

  // reclaim.cc: who makes room.
  bool Reclaim(RequestState* claimant, bool from_own_class);
  RequestState* PickVictim(const RequestState& claimant, bool from_own_class) const;
  bool ClaimIsMet(const RequestState& claimant, bool from_own_class) const;
  void Preempt(RequestState* r);

  // release_schedule.cc: when room comes by itself.
  std::optional<ReservedStart> FindReservedStart(RequestState* head);
  bool LeavesReservedStart(RequestState* r, RequestState* head, const std::optional<ReservedStart>& start);
  void DetachRunning(RequestState* r);
  void AttachRunning(RequestState* r);

  const std::int64_t block_tokens_;
  Policy policy_;
  std::vector<ClassId> class_order_;  // by priority, then index
  Ledger ledger_;
  std::vector<ClassState> classes_;
  std::vector<TenantState> tenants_;
  std::unordered_map<RequestKey, std::unique_ptr<RequestState>> requests_;
  std::set<std::pair<std::int64_t, RequestKey>> release_schedule_;  // end step and key of what runs
  std::set<std::pair<TimePoint, RequestKey>> expiries_;
  std::vector<RequestKey> ending_;                          // to end in the next plan
  std::vector<AdmissionPlan::Ending> ended_between_plans_;  // not yet told
  std::vector<RequestKey> rejecting_;  // queued since the last plan and refused if the next one does not start them

  // What may be shed, the first to go first.
  struct ShedOrder {
    bool operator()(const RequestState* a, const RequestState* b) const;
    const Policy* policy;
  };
  std::set<RequestState*, ShedOrder> sheddable_;
  std::int64_t queued_requests_ = 0;  // of all classes
  std::int64_t queued_tokens_ = 0;

  bool settled_ = false;  // nothing has happened since the last plan, and that decided nothing

  // Of the plan in the making.
  std::int64_t plan_number_ = 0;
  TimePoint now_{};
  Duration step_time_{};
  const PoolView* view_ = nullptr;
  AdmissionPlan plan_;
  std::vector<RequestState*> prepared_;
  std::vector<BoundHead> bound_;
  std::vector<CachedBlock> cached_;     // scratch
  std::vector<RequestState*> window_;   // scratch
  std::vector<RequestState*> victims_;  // scratch
  std::int64_t walk_number_ = 0;
};

}  // namespace berth
