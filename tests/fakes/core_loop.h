// The deterministic core in one loop: arrivals, plan, commit, step, result. What the engine does between its threads,
// for tests and simulations that own the clock. Where the backend takes two steps at once, each is submitted while the
// one before is in flight.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "admission/admission.h"
#include "admission/entry_desk.h"
#include "berth/backend.h"
#include "kv/block_pool.h"
#include "scheduler/scheduler.h"

namespace berth::test {

struct LoopRequest {
  ClassId service_class = 0;
  TenantId tenant = 0;
  std::vector<TokenId> prompt;
  std::int64_t max_output_tokens = 1;
  std::int32_t n = 1;
  std::uint64_t seed = 0;
  std::uint64_t salt = 0;
  TimePoint deadline = kNoDeadline;
  std::int32_t prompt_logprobs = kNoLogprobs;
  bool judge_deadline = false;  // predict what it needs before its deadline
};

// How a request ended, and what it had got by then.
struct Outcome {
  std::optional<RefusalReason> reason;  // absent = complete
  std::vector<std::vector<TokenId>> output;
  TimePoint arrival{};
  std::optional<TimePoint> first_start;
  std::optional<TimePoint> first_token;
  TimePoint end{};
  std::int64_t preemptions = 0;
};

class CoreLoop {
 public:
  // After how many tokens a choice ends by itself: told the output so far.
  using StopRule = std::function<bool(RequestKey, std::int32_t choice, const std::vector<TokenId>& output)>;

  CoreLoop(const KvPoolShape& pool, const Policy& policy, Backend* backend,
           const StepCostModel& cost_model = StepCostModel());
  ~CoreLoop();

  // Takes a place in the queue, then submits. The key, or what refused it; an ended() entry is made for both.
  RequestKey Arrive(const LoopRequest& request, TimePoint now);
  // As Arrive, with a place that desk().Enter gave before.
  RequestKey ArriveWithTicket(const LoopRequest& request, TimePoint now);
  void Cancel(RequestKey key) { admission_.Cancel(key); }
  void SetPolicy(const Policy& policy, TimePoint now);

  // One plan and one step. False where nothing is left to do. `after_plan` runs once the plan is committed. With two
  // steps in flight: the plan of one and the result of the one before.
  bool Tick(TimePoint now);

  // After a Tick: does as many steps at once, each of `step_time` and drawing the same token, as decide nothing and are
  // over by `until`. How many. REQUIRES: no stop rule.
  std::int64_t SkipQuiet(TimePoint now, Duration step_time, TimePoint until = TimePoint::max());

  void set_stop_rule(StopRule rule) { stop_rule_ = std::move(rule); }
  // What the stop rule ends is told so many plans late, and goes on meanwhile: as when it is text that ends a choice,
  // which is found beside the steps.
  void set_stop_lag(std::int64_t plans) { stop_lag_ = plans; }
  void set_after_plan(std::function<void(const AdmissionPlan&)> check) { after_plan_ = std::move(check); }
  void set_step_time(Duration step_time) { fixed_step_time_ = step_time; }
  // Told each step once it is submitted: whether the next one is drafted while it runs, where that is not submitted
  // ahead.
  void set_drafts(std::function<bool(const StepPlan&)> drafts) { drafts_ = std::move(drafts); }

  EntryDesk& desk() { return desk_; }
  Admission& admission() { return admission_; }
  Scheduler& scheduler() { return scheduler_; }
  BlockPool& pool() { return pool_; }
  const std::map<RequestKey, Outcome>& ended() const { return ended_; }
  std::map<RequestKey, Outcome>* mutable_ended() { return &ended_; }
  // The live requests, by key.
  struct View {
    RequestKey key = 0;
    const LoopRequest* request = nullptr;
    std::int64_t live_choices = 0;
    bool running = false;
  };
  std::vector<View> Views() const;
  std::int64_t live() const { return static_cast<std::int64_t>(live_.size()); }
  // The step whose result the last Tick took; null where there was none.
  const StepPlan* last_step() const { return last_step_; }
  bool submits_ahead() const { return backend_->info().max_steps_in_flight > 1; }
  bool last_step_failed() const { return last_step_failed_; }
  Duration last_busy() const { return result_.busy; }
  // Something started, ended or was computed in the last Tick.
  bool progressed() const { return progressed_; }

 private:
  struct Live {
    LoopRequest request;
    std::shared_ptr<SamplingSpec> sampling = std::make_shared<SamplingSpec>();
    Outcome outcome;
    std::vector<bool> ended;
    std::vector<bool> stopping;  // will be told to end
    std::int64_t tokens = 0;
  };

  ClassId ClassOf(RequestKey key) const { return live_.at(key)->request.service_class; }
  void EndWhatEndedBetweenPlans(TimePoint now);
  void UpdateDesk(const AdmissionPlan& plan);
  void End(RequestKey key, std::optional<RefusalReason> reason, TimePoint now);
  void TakeToken(const DrawnToken& drawn, TimePoint now);
  void EndChoice(RequestKey key, std::int32_t choice, TimePoint now);
  void ApplyLateStops(TimePoint now);
  void RunStep(TimePoint now);
  void Collect(TimePoint now);

  BlockPool pool_;
  EntryDesk desk_;
  Admission admission_;
  Scheduler scheduler_;
  Backend* backend_;
  RequestKey next_key_ = 0;
  std::map<RequestKey, std::unique_ptr<Live>> live_;
  std::map<RequestKey, Outcome> ended_;
  StopRule stop_rule_;
  struct LateStop {
    std::int64_t tick = 0;
    RequestKey key = 0;
    std::int32_t choice = 0;
  };
  std::int64_t stop_lag_ = 0;
  std::int64_t ticks_ = 0;
  std::vector<LateStop> late_stops_;
  std::function<void(const AdmissionPlan&)> after_plan_;
  std::optional<Duration> fixed_step_time_;
  std::function<bool(const StepPlan&)> drafts_;
  StepResult result_;
  std::deque<const StepPlan*> in_flight_;
  bool broken_ = false;  // what is in flight is behind a step that failed
  const StepPlan* last_step_ = nullptr;
  bool last_step_failed_ = false;
  std::vector<BlockId> released_;
  bool progressed_ = false;
};

}  // namespace berth::test
