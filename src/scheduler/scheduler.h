// Turns running requests into steps: which tokens each sequence computes next, into which blocks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "berth/admission.h"
#include "berth/clock.h"
#include "berth/kv.h"
#include "berth/policy.h"
#include "berth/pool_view.h"
#include "berth/request.h"
#include "berth/step.h"
#include "kv/block_pool.h"
#include "scheduler/host_copy.h"
#include "scheduler/step_cost_model.h"

namespace berth {

// What the scheduler needs of a request, from its arrival on. `sampling` and what is banned stay unchanged while it
// lives, and until no step in flight has a row of it.
struct ScheduledRequest {
  RequestKey key = 0;
  ClassId service_class = 0;
  TimePoint deadline = kNoDeadline;
  std::vector<TokenId> prompt;             // ≥ 1 token
  std::int64_t max_output_tokens = 1;      // per choice
  std::uint64_t salt = 0;                  // its tenant's
  const SamplingSpec* sampling = nullptr;  // never null; n choices
  std::int32_t logprobs = kNoLogprobs;
  std::int32_t prompt_logprobs = kNoLogprobs;  // any: takes no cached blocks
  std::int64_t min_output_tokens = 0;
  std::span<const TokenId> banned;        // never drawn; sorted
  std::span<const TokenId> early_banned;  // not drawn before min_output_tokens: `banned` and more; sorted
  std::shared_ptr<const void> lender;     // keeps what is borrowed; null where that outlives the scheduler
};

// A token that a step drew.
struct DrawnToken {
  RequestKey key = 0;
  std::int32_t choice = 0;
  TokenId token = kNoToken;
  std::int32_t logit_row = 0;  // its place in the step's results
};

// The log-probabilities of a request's prompt that a step reports.
struct TargetRows {
  RequestKey key = 0;
  std::int32_t first = 0;  // in the step's results
  std::int32_t count = 0;
};

// How far a request is from its end at the latest.
struct StepsLeft {
  RequestKey key = 0;
  std::int64_t steps = 0;
};

// A request that could not be useful before its deadline even if it ran alone.
struct HopelessRequest {
  RequestKey key = 0;
  Duration predicted{};              // from now until it would be
  std::int64_t computed_tokens = 0;  // since its last start, for nothing
};

// A request's part of a step's time.
struct StepShare {
  RequestKey key = 0;
  double share = 0.0;
  double recompute_share = 0.0;  // of `share`'s whole: for tokens that a preemption had lost
  std::int64_t recomputed_tokens = 0;
  bool prefills = false;  // did anything but decode a token for each of its sequences
};

// What a class requires before the deadline, in output tokens of each choice.
std::int64_t RequiredTokens(const ClassPolicy& service_class, std::int64_t max_output_tokens);

// Owns the running requests' blocks and positions. The life of a request: Add, then Commit starts it (and may preempt
// and restart it), steps advance it, EndChoice and Remove end it; Commit or Remove ends it early. Deterministic and not
// thread-safe; the engine thread owns it.
//
// A step is in flight from a PlanStep whose plan is not empty until its ApplyStep or DropStep. Steps run one after the
// other, in the order in which they were planned, and are applied in that order. At most `max_steps_in_flight` are in
// flight, and at most one when Commit, PlanStep or EndChoice is called.
//
// With one step in flight the next one is planned as if that succeeds and nothing ends but by its length: what draws a
// token in it decodes that token in the next one, which is told where to find it (CarriedToken). A *ghost* is a row in
// flight whose sequence ended or was preempted after it was planned: nothing of its result counts, neither a token nor
// what it computed. Its blocks are free at once, since whoever gets them writes in a later step, which runs after it;
// and it writes behind what its sequence had computed, so never to a block that others hold or can find.
//
// Since every block comes out of a reservation, taking those that a step needs cannot fail.
class Scheduler final : public PoolView {
 public:
  static constexpr std::int32_t kMaxStepsInFlight = 2;

  // `pool` must outlive the scheduler. REQUIRES: 1 ≤ max_steps_in_flight ≤ kMaxStepsInFlight.
  Scheduler(BlockPool* pool, const Policy& policy, const StepCostModel& cost_model = StepCostModel(),
            std::int32_t max_steps_in_flight = 1);

  // As Admission::SetPolicy, between two plans.
  void SetPolicy(const Policy& policy);

  void Add(ScheduledRequest request);
  // Forgets a request that waits or runs; its blocks return. Unknown keys are ignored.
  void Remove(RequestKey key);

  // Carries out admission's decisions, all of them: what ends or is preempted lets go of its blocks first, then what
  // starts gets its reservation and the cached blocks it finds. A refusal of the pool is a bug and crashes.
  //
  // What is preempted goes to the host's memory where that is predicted to cost less than computing it again and there
  // is room for all of it. Its blocks are free at once, since the next step copies before it writes; a request that
  // starts again gets from there what the cache does not have. Where a copy out fails, it is computed again. A token
  // that a row in flight draws is lost with the row, and drawn again as if for the first time.
  void Commit(const AdmissionPlan& plan);

  // The next step; empty() where there is nothing to do. Valid until it is applied or dropped; an empty one until the
  // next call. Every running sequence that has its prompt decodes one token, unless the step in flight draws its last;
  // what is left of the budget goes to prefill chunks.
  const StepPlan& PlanStep(TimePoint now);
  // While the only step is in flight: prepares the rows of the next one that decode, as if this one succeeds. The next
  // PlanStep then only adds what nobody knows yet, leaves out what ended meanwhile, and plans the same step as without
  // a draft.
  void DraftStep();
  // Running requests in the middle of their prompt that could not meet their deadline even alone, as of the last
  // PlanStep: they got no chunk, and the caller should end them.
  std::span<const HopelessRequest> hopeless() const { return hopeless_; }

  std::int32_t steps_in_flight() const { return in_flight_; }
  // The oldest step in flight succeeded: its blocks count as computed, its tokens are drawn.
  std::span<const DrawnToken> ApplyStep(const StepResult& result);
  // What the step that was applied last reports of prompts, in order of position for each request.
  std::span<const TargetRows> target_rows() const { return target_rows_; }
  // The oldest step in flight failed: the running requests it touched, whose blocks may hold anything. The caller ends
  // them. A step behind it fails as well, and nothing is planned until it was dropped.
  std::span<const RequestKey> DropStep() { return Drop(0); }
  // The same for the newest step in flight, which the backend did not take: the one before it goes on.
  std::span<const RequestKey> DropNewestStep() { return Drop(in_flight_ - 1); }

  // How many of the next steps would do nothing but decode a token for each running sequence, and end none of them, if
  // nothing starts, ends or is preempted meanwhile. None while a step is in flight.
  std::int64_t QuietSteps() const;
  // Does so many of them at once, drawing `token` everywhere: for simulations whose outputs nobody reads. The steps get
  // no number, and the cost model learns nothing from them. REQUIRES: steps ≤ QuietSteps(); no step is in flight.
  void SkipSteps(std::int64_t steps, TokenId token);

  // What each request of the last step that succeeded has of its time, by predicted cost; what a step costs whatever is
  // in it is split equally among its rows. Sums to 1: the others pay for ghosts, and nobody where there are no others.
  std::span<const StepShare> shares() const { return shares_; }

  // The choice is over. Its blocks return and the group's reservation drops to `new_reserved`; `released` gets the
  // blocks. REQUIRES: it is not the last live choice.
  void EndChoice(RequestKey key, std::int32_t choice, std::int64_t new_reserved, std::vector<BlockId>* released);

  // Requests whose latest end moved with the step that was applied last; the others end as foreseen, one step nearer.
  // Counts plans, one for each step, from the next one to that in which the request has ended.
  std::span<const StepsLeft> moved_ends() const { return moved_ends_; }

  // PoolView.
  void FindCached(RequestKey key, std::vector<CachedBlock>* out) const override;
  std::int64_t RecomputeTokens(RequestKey key) const override;
  std::int64_t UsedTokens(RequestKey key) const override;
  std::int64_t StepsToFinish(RequestKey key, std::int64_t cached_blocks) const override;

  // Predicted time from the start of a request until `output_tokens` are there, beside what runs now, or alone.
  Duration PredictTime(std::int64_t prompt_tokens, std::int64_t output_tokens, bool alone) const;
  // Tokens that the running requests could compute in a step of their own, by class, as of the last step that was
  // applied: one for each sequence that decodes, and of each prompt what is left, at most a step's budget. Adds to
  // `by_class`, which has an entry for every class.
  void AddWantedTokens(std::span<std::int64_t> by_class) const;
  // Predicted time of a step like the last one.
  Duration PredictStep() const { return cost_model_.Predict(last_work_); }
  // The step that was planned last.
  Duration PredictPlannedStep() const { return cost_model_.Predict(step_->work); }
  // What its class requires before the deadline, in output tokens.
  std::int64_t RequiredTokens(ClassId service_class, std::int64_t max_output_tokens) const {
    return berth::RequiredTokens(policy_.classes[static_cast<std::size_t>(service_class)], max_output_tokens);
  }

  const StepCostModel& cost_model() const { return cost_model_; }
  bool idle() const { return running_.empty(); }
  std::int64_t running_requests() const { return static_cast<std::int64_t>(running_.size()); }
  // A running request's blocks; null while it waits.
  const BlockReservation* Blocks(RequestKey key) const;
  // Cached tokens that the request found at its last start; 0 before the first.
  std::int64_t CachedTokens(RequestKey key) const { return at(key).cached_tokens; }
  // Tokens that were lost to preemptions and computed again, so far.
  std::int64_t RecomputedTokens(RequestKey key) const { return at(key).recomputed_tokens; }
  std::int64_t computed_tokens() const { return computed_tokens_; }        // ever, recomputation included
  std::int64_t recomputed_tokens() const { return recomputed_tokens_; }    // lost to a preemption and computed again
  std::int64_t swapped_out_blocks() const { return swapped_out_blocks_; }  // ever copied to the host's memory
  std::int64_t swapped_in_blocks() const { return swapped_in_blocks_; }    // and from it
  // Preempted requests that were to go to the host's memory and found no room there.
  std::int64_t failed_swaps() const { return failed_swaps_; }
  // Blocks of the host's memory that the request has now.
  std::int64_t HostBlocks(RequestKey key) const {
    const Request& r = at(key);
    return r.host == nullptr ? 0 : std::ssize(r.host->holding.blocks());
  }

 private:
  struct Choice {
    SequenceId sequence = 0;
    std::vector<TokenId> history;  // prompt and output; capacity for all of it
    std::int64_t stored = 0;       // tokens whose K and V are there
    std::int64_t ahead = 0;        // the same once the steps in flight are done
    std::int32_t draws = 0;        // tokens that they draw
    std::int32_t last_draw = 0;    // the logit row of the last of them
    std::int64_t highest_stored = 0;
    std::int32_t drafted = -1;  // its row in draft_, if that is still valid
    bool ended = false;

    // Once the steps in flight are done.
    std::int64_t length() const { return static_cast<std::int64_t>(history.size()) + draws; }
  };
  struct Request {
    ScheduledRequest spec;
    std::vector<Choice> choices;
    std::optional<BlockReservation> blocks;  // while running
    std::int32_t run = 0;                    // how often it was started
    std::int32_t running_index = 0;
    std::int64_t table_blocks = 0;  // its part of table_blocks_
    std::int64_t cached_tokens = 0;
    std::int64_t recomputed_tokens = 0;
    std::unique_ptr<HostCopy> host;  // what lies in the host's memory, from a preemption until it is copied back
    std::int64_t last_step = 0;      // the last that it had a part in
    std::int32_t part = 0;           // its place among that step's parts
    bool forked = false;             // every choice has its own copy of the prompt's last, partial block
    bool removed = false;            // only steps in flight know it still

    std::int64_t prompt_tokens() const { return static_cast<std::int64_t>(spec.prompt.size()); }
  };
  // A sequence that has more than one token to compute.
  struct Prefill {
    Request* request = nullptr;
    std::int32_t choice = 0;
    std::int64_t need = 0;
    std::int64_t chunk = 0;
  };

  // What a step has of a request.
  struct Part {
    Request* request = nullptr;
    std::int32_t run = 0;         // in which it was planned; of a request that is parked, the last one
    std::int64_t copies_out = 0;  // to the host's memory
    std::int64_t copies_in = 0;   // and from it
    bool forked = false;          // with this step
    bool any_row = false;         // once the step is applied: one that is no ghost,
    bool any_other_row = false;   // and one that did anything but decode
  };
  struct PlannedRow {
    std::int32_t part = 0;
    std::int32_t choice = 0;
    bool decodes = false;
  };
  struct PlannedDraw {
    std::int32_t part = 0;
    std::int32_t choice = 0;
    std::int32_t logit_row = 0;
  };
  struct PlannedTargets {
    std::int32_t part = 0;
    std::int32_t choice = 0;
    TargetRows rows;
  };
  struct LeftOut {
    RequestKey request = 0;
    std::int32_t run = 0;
  };
  // A step, and whose is what in it. Requests that are gone are kept as long as a step in flight names them.
  struct PlannedStep {
    StepPlan plan;
    StepWork work;
    std::vector<Part> parts;
    std::vector<PlannedRow> rows;  // as plan.rows
    std::vector<PlannedDraw> draws;
    std::vector<PlannedTargets> targets;
    std::vector<LeftOut> left_out;  // prefills that got no chunk
  };

  // A decode row of the next step without what the step in flight decides.
  struct DraftedRow {
    StepRow row;
    LogitRow logits;
    bool takes_block = false;  // its table ends with the place for one more
  };
  struct HeldBlock {
    BlockId block = kNoBlock;
    std::int64_t tokens = 0;  // computed ones in it
  };
  // A request that is being preempted, while its blocks still hold what it computed.
  struct Leaving {
    RequestKey key = 0;
    std::unique_ptr<HostCopy> copy;
    std::vector<HeldBlock> blocks;  // in the order of the copy's
  };
  // A copy that the next step makes.
  struct PendingSwap {
    Request* request = nullptr;
    std::int32_t choice = -1;  // into its own blocks; -1 = into those that all share, or out
    SwapCopy copy;
  };

  Request& at(RequestKey key);
  const Request& at(RequestKey key) const;
  std::int64_t SharedTokens(const Request& r) const;  // of the prompt's full blocks
  CachedPrefix Cached(const Request& r) const;
  void Start(const AdmissionPlan::Start& start);
  void LetGo(Request* r);
  void Bury(std::unique_ptr<Request> r);
  std::int64_t Left(const Request& r, std::int64_t computed_tokens) const;
  std::int32_t Leader(const Request& r) const;

  // swap.cc
  Leaving Describe(const Request& r) const;
  bool SwapPays(const Request& r, const Leaving& leaving) const;
  void SwapOut(Leaving* leaving);
  void SwapIn(Request* r);
  std::int64_t PlanSwapIn(Request* r, std::int32_t choice, std::int64_t first, std::int64_t tokens,
                          std::int64_t host_begin);
  void CommitSwaps(const AdmissionPlan& plan);
  void DropSwapIn(Request* r, std::int32_t choice);
  void ForgetHostCopyIfUnused(Request* r);
  void DropHostCopy(Request* r);
  void KeepHostCopy(Request* r);
  void EmitSwaps();
  void FinishSwaps(const Part& part);

  // draft.cc
  void Draft(Request* r, std::int32_t choice);
  DraftedRow* Drafted(const Choice& c);
  void EmitDrafted(Request* r, std::int32_t choice, DraftedRow* drafted);

  // step_result.cc
  static bool Runs(const Part& part) { return part.request->run == part.run && part.request->blocks.has_value(); }
  static bool IsGhost(const Part& part, std::int32_t choice) {
    return !Runs(part) || part.request->choices[static_cast<std::size_t>(choice)].ended;
  }
  PlannedStep& InFlight(std::int32_t nth) {
    return steps_[static_cast<std::size_t>((oldest_ + nth) % kMaxStepsInFlight)];
  }
  void TakeRow(PlannedStep* step, std::size_t row);
  void TakePart(const Part& part, StepShare* share);
  void TakeTargets(const PlannedStep& step);
  void TakeDraws(const PlannedStep& step, const StepResult& result);
  void NoteMovedEnds(const PlannedStep& step);
  double PredictedCost(const PlannedStep& step, std::size_t row) const;
  void ScaleShares();
  void DropParts(const PlannedStep& step);
  void LetGoOfBuried();
  std::span<const RequestKey> Drop(std::int32_t nth);

  // step_planner.cc: all of it once the steps in flight are done.
  static bool IsDecoding(const Request& r, const Choice& c) {
    return c.length() > r.prompt_tokens() && c.length() - c.ahead == 1;
  }
  static bool IsComplete(const Request& r, const Choice& c) {
    return c.length() - r.prompt_tokens() >= r.spec.max_output_tokens;
  }
  void BeginStep();
  bool EmitDecodes(Request* r);
  void GatherPrefills(TimePoint now);
  std::optional<Duration> TooLate(const Request& r, const Prefill& p, TimePoint now) const;
  std::int64_t PrefillBudget(std::int64_t decodes) const;
  void ShareOut(std::int64_t budget);
  Part& PartOf(Request* r);
  void ForkIfDue(Request* r);
  void Emit(Request* r, std::int32_t choice, std::int64_t tokens);
  void EmitRow(Request* r, std::int32_t choice, const StepRow& row);
  void TakeAhead(Request* r, std::int32_t choice, std::int64_t end);
  std::int64_t CommonTokens(const Request& r, bool forked, std::int64_t leader_tokens) const;
  static LogitRow DecodeLogits(const Request& r, std::int32_t choice, std::int64_t length);
  void AddDraw(Request* r, std::int32_t choice, const LogitRow& row);
  void EmitLogits(Request* request, std::int32_t choice, std::int64_t tokens);

  BlockPool* pool_;
  Policy policy_;
  StepCostModel cost_model_;
  std::unordered_map<RequestKey, std::unique_ptr<Request>> requests_;
  std::vector<Request*> running_;
  SequenceId next_sequence_ = 0;
  std::int64_t table_blocks_ = 0;  // the most that a step's block tables may hold, so that decoding never grows them

  const std::int32_t max_steps_in_flight_;
  std::array<PlannedStep, kMaxStepsInFlight> steps_;  // a ring
  std::int32_t oldest_ = 0;
  std::int32_t in_flight_ = 0;
  PlannedStep* step_ = steps_.data();  // the one that is being planned, or was planned last
  std::int64_t planned_steps_ = 0;
  std::vector<std::unique_ptr<Request>> buried_;  // gone, but a step in flight names them
  StepWork last_work_;                            // of the last step that succeeded
  Duration tightest_slo_{};                       // among what decodes in step_
  std::vector<DraftedRow> draft_;
  std::vector<BlockId> draft_block_ids_;
  std::vector<Request*> prefilling_;  // have a sequence that does not decode
  std::vector<Prefill> prefills_;
  std::vector<DrawnToken> drawn_;
  std::vector<TargetRows> target_rows_;
  std::vector<HopelessRequest> hopeless_;
  std::vector<RequestKey> dropped_;
  std::vector<Leaving> leaving_;       // of the plan being committed
  std::vector<PendingSwap> swap_out_;  // for the next step
  std::vector<PendingSwap> swap_in_;
  std::vector<bool> leaves_;  // by block: scratch
  std::vector<StepsLeft> moved_ends_;
  std::vector<StepShare> shares_;
  std::int64_t computed_tokens_ = 0;
  std::int64_t recomputed_tokens_ = 0;
  std::int64_t swapped_out_blocks_ = 0;
  std::int64_t swapped_in_blocks_ = 0;
  std::int64_t failed_swaps_ = 0;
};

}  // namespace berth
