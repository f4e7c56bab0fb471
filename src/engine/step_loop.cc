#include "engine/step_loop.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace berth {
namespace {

// While something waits and cannot start (its class is on hold, a quota is full), time alone may change that.
constexpr Duration kLookAgain = std::chrono::milliseconds(5);

// Numbers for steps that are the scheduler's none of.
constexpr std::int64_t kProbeStep = -1;
constexpr SyntheticWork kProbe = {.sequences = 1, .tokens = 1, .position = 0};

}  // namespace

StepLoop::StepLoop(const Options& options, const Policy& policy, Backend* backend, const Clock* clock,
                   const Shared& shared)
    : options_(options),
      backend_(backend),
      clock_(clock),
      shared_(shared),
      pool_(backend->info().pool, static_cast<std::int32_t>(policy.classes.size())),
      admission_(backend->info().pool, policy),
      batch_(std::make_unique<OutputBatch>()) {
  TellLoad();
  shared_.heartbeat->NoteProgressOfAll(policy.classes.size(), clock->Now());
  shared_.heartbeat->Publish();
}

StepLoop::~StepLoop() = default;

void StepLoop::Run() {
  pthread_setname_np(pthread_self(), "berth-engine");
  backend_->NotifyWhenDone([inbox = shared_.inbox] { inbox->NoteStepDone(); });
  shared_.heartbeat->StartTurn(clock_->Now());
  StepCostModel cost_model;
  const auto run = [this](const StepPlan& plan, StepResult* result) {
    absl::Status status = backend_->Submit(plan);
    if (status.ok()) {
      status = backend_->Await(result);
      ++awaited_steps_;
    }
    return status;
  };
  if (absl::Status status = Calibrate(options_.calibration_steps, admission_.policy().max_running_sequences,
                                      backend_->info(), run, &pool_, &cost_model);
      !status.ok()) {
    NoteFault(status);
  }
  scheduler_.emplace(&pool_, admission_.policy(), cost_model, backend_->info().max_steps_in_flight);
  shared_.heartbeat->EndTurn();
  while (!mail_.stop || !live_.empty() || !in_flight_.empty()) {
    shared_.inbox->WaitAndTake(HowLongToWait(), &mail_);
    shared_.heartbeat->StartTurn(clock_->Now());
    Turn();
    shared_.heartbeat->EndTurn();
  }
}

std::optional<Duration> StepLoop::HowLongToWait() const {
  if (OldestIsDone()) return Duration::zero();
  if (!in_flight_.empty()) return std::nullopt;
  if (!live_.empty()) return progressed_ ? Duration::zero() : kLookAgain;
  if (!faulted_) return std::nullopt;
  return std::max<Duration>(Duration::zero(), next_probe_ - RealTime::now());
}

// Plans count the steps that admission foresees, so there is one of them for each: behind a step in flight the next one
// is planned once, and where that comes to nothing, again when the step is done. A probe has a block that admission
// does not know of, and what is behind a step that failed fails as well.
bool StepLoop::MayPlan() const {
  if (in_flight_.empty()) return true;
  return std::ssize(in_flight_) < backend_->info().max_steps_in_flight && plan_ahead_ && !broken_ &&
         !in_flight_.front().probe;
}

void StepLoop::Turn() {
  NoteStepsDone();
  if (OldestIsDone()) Collect();
  const TimePoint now = clock_->Now();
  OpenMail(now);
  const bool plans = MayPlan();
  while (MayPlan()) {
    Advance(now);
    if (in_flight_.empty() || live_.empty()) break;
  }
  const bool goes_on = in_flight_.empty() && !live_.empty() && progressed_;
  if (!goes_on) idle_since_.reset();
  Settle();
  AnswerLiveQuestions(now);
  if (plans && backend_->info().max_steps_in_flight == 1 && scheduler_->steps_in_flight() == 1) scheduler_->DraftStep();
}

void StepLoop::NoteStepsDone() {
  for (const RealTime::time_point done : mail_.steps_done) {
    if (told_steps_++ >= awaited_steps_) done_.push_back(done);
  }
}

void StepLoop::Collect() {
  const Flight step = in_flight_.front();
  const RealTime::time_point done = done_.front();
  in_flight_.pop_front();
  done_.pop_front();
  const absl::Status status = backend_->Await(&result_);
  ++awaited_steps_;
  plan_ahead_ = true;
  if (in_flight_.empty()) {
    idle_since_ = done;
    if (!step.probe) NoteIdle();
    shared_.heartbeat->EndStep();
  } else {
    Flight& next = in_flight_.front();
    next.host_gap = std::max<Duration>(Duration::zero(), next.submitted - done);
    shared_.heartbeat->StartStep(clock_->Now(), next.predicted);
  }
  if (step.probe) {
    probe_.reset();
    if (status.ok()) faulted_ = false;
    if (!status.ok()) NoteFault(status);
    return;
  }
  if (!status.ok()) return DropStep(status);
  BERTH_CHECK_MSG(!broken_, "a step behind one that failed did not fail");
  if (!step.before_fault) faulted_ = false;
  const TimePoint now = clock_->Now();
  batch_->drawn_at = now;
  const std::span<const DrawnToken> drawn = scheduler_->ApplyStep(result_);
  ReportPromptLogprobs();
  ShareOutTime(step.host_gap, now);
  for (const DrawnToken& token : drawn) TakeToken(token, now);
  for (const StepsLeft& moved : scheduler_->moved_ends()) {
    if (live_.contains(moved.key)) admission_.SetEndStep(moved.key, admission_.plan_number() + 1 + moved.steps);
  }
  std::swap(batch_->top, result_.top);
}

// A step that was submitted ahead may outlive its requests: the engine is over when that is.
void StepLoop::NoteBusy() {
  if (backend_->info().max_steps_in_flight > 1) shared_.entrance->NoteSubmitted();
}

void StepLoop::NoteIdle() {
  if (backend_->info().max_steps_in_flight > 1) shared_.entrance->NoteOver();
}

// What the step touched ends. Of two that fail together the first one's error is the cause.
void StepLoop::DropStep(const absl::Status& status) {
  if (!broken_) NoteFault(status);
  broken_ = !in_flight_.empty();
  for (const RequestKey key : scheduler_->DropStep()) admission_.Cancel(key, RefusalReason::kBackendFault);
}

void StepLoop::ReportPromptLogprobs() {
  for (const TargetRows& rows : scheduler_->target_rows()) {
    LiveRequest* request = live_.at(rows.key).get();
    for (std::int32_t i = rows.first; i < rows.first + rows.count; ++i) {
      const LogitResult& logit = result_.logits[Index(i)];
      OutputRecord& record = AddRecord(OutputRecord::Kind::kPromptLogprob, request);
      record.token = logit.token;
      record.logprob = logit.logprob;
      record.top_begin = logit.top_begin;
      record.num_top = logit.num_top;
    }
  }
}

void StepLoop::ShareOutTime(std::optional<Duration> host_gap, TimePoint now) {
  const auto part_of_busy = [&](double share) { return std::chrono::duration_cast<Duration>(share * result_.busy); };
  parts_.clear();
  Duration left = result_.busy;
  for (const StepShare& share : scheduler_->shares()) {
    LiveRequest& request = *live_.at(share.key);
    shared_.heartbeat->NoteProgress(Index(request.service_class()), now);
    const bool is_last = parts_.size() + 1 == scheduler_->shares().size();
    const Duration time = is_last ? left : std::min(left, part_of_busy(share.share));
    left -= time;
    request.meter.AddBusy(time);
    if (request.meter.preempted()) request.meter.SetRecomputedTokens(scheduler_->RecomputedTokens(share.key));
    parts_.push_back({.service_class = request.service_class(),
                      .tenant = request.facts->spec.tenant,
                      .phase = share.prefills ? StepPhase::kPrefill : StepPhase::kDecode,
                      .time = time,
                      .recompute_time = std::min(time, part_of_busy(share.recompute_share)),
                      .recomputed_tokens = share.recomputed_tokens});
  }
  ran_ = StepRan{.busy = result_.busy, .host_gap = host_gap, .parts = parts_};
}

void StepLoop::TakeToken(const DrawnToken& drawn, TimePoint now) {
  LiveRequest* request = live_.at(drawn.key).get();
  LiveRequest::Choice& choice = request->choices[Index(drawn.choice)];
  ++choice.output_tokens;
  request->meter.NoteToken(now);
  const bool ends = request->facts->end_rule.After(drawn.token, choice.output_tokens).has_value();
  const LogitResult& logit = result_.logits[Index(drawn.logit_row)];
  OutputRecord& record = AddRecord(OutputRecord::Kind::kToken, request);
  record.choice = drawn.choice;
  record.token = drawn.token;
  record.logprob = logit.logprob;
  record.top_begin = logit.top_begin;
  record.num_top = logit.num_top;
  record.ends_choice = ends;
  if (ends) EndChoice(request, drawn.choice, now);
}

void StepLoop::Advance(TimePoint now) {
  if (next_policy_.has_value()) AdoptPolicy(*std::exchange(next_policy_, std::nullopt), now);
  ApplyStops(now);
  if (drain_until_.has_value() && now >= *drain_until_) {
    for (const auto& [key, request] : live_) admission_.Cancel(key, RefusalReason::kDrainTimeout);
  }
  if (live_.empty()) {
    if (in_flight_.empty()) ProbeIfDue();
    return;
  }
  plan_ahead_ = in_flight_.empty();

  const AdmissionPlan& plan = admission_.Plan(now, scheduler_->PredictStep(), *scheduler_);
  scheduler_->Commit(plan);
  const StepPlan& step = scheduler_->PlanStep(now);
  for (const HopelessRequest& r : scheduler_->hopeless()) {
    admission_.EndInfeasible(r.key, now + r.predicted, r.computed_tokens);
  }
  if (!step.empty()) Submit(step, now);

  // The step runs; everything from here on is off its way.
  progressed_ = !step.empty() || !scheduler_->hopeless().empty() || !plan.end.empty() || !plan.preempt.empty();
  Digest(plan, now);
  for (LiveRequest* request : running_) {
    request->meter.SetHeldBlocks(scheduler_->Blocks(request->key)->held(), now);
  }
  if (running_.empty() && in_flight_.empty()) ProbeIfDue();
  retry_after_.clear();
  for (ClassId c = 0; c < std::ssize(admission_.policy().classes); ++c) {
    retry_after_.push_back(admission_.RetryAfter(c));
  }
}

void StepLoop::Submit(const StepPlan& step, TimePoint now) {
  if (const absl::Status status = backend_->Submit(step); !status.ok()) {
    NoteFault(status);
    for (const RequestKey key : scheduler_->DropNewestStep()) admission_.Cancel(key, RefusalReason::kBackendFault);
    return;
  }
  Flight flight{.predicted = scheduler_->PredictPlannedStep(), .submitted = RealTime::now()};
  if (in_flight_.empty()) {
    NoteBusy();
    if (idle_since_.has_value()) flight.host_gap = flight.submitted - *idle_since_;
    shared_.heartbeat->StartStep(now, flight.predicted);
  }
  in_flight_.push_back(flight);
}

// Nothing runs whose step would tell whether the backend is back.
void StepLoop::ProbeIfDue() {
  if (!faulted_ || mail_.stop || RealTime::now() < next_probe_) return;
  probe_ = SyntheticStep::Make(kProbe, kProbeStep, &pool_);
  BERTH_CHECK_MSG(probe_.has_value(), "nothing runs and no block is free");
  if (absl::Status status = backend_->Submit(probe_->plan()); !status.ok()) {
    probe_.reset();
    return NoteFault(status);
  }
  in_flight_.push_back({.probe = true});
  shared_.heartbeat->StartStep(clock_->Now(), Duration::zero());
}

void StepLoop::NoteFault(const absl::Status& status) {
  fault_ = status;
  faulted_ = true;
  for (Flight& step : in_flight_) step.before_fault = true;
  next_probe_ = RealTime::now() + options_.probe_interval;
}

// Tells the other threads what this turn decided, each of them in one go: by the time a request's last event is on its
// way, its blocks, its place and its id are free, and the load says so.
void StepLoop::Settle() {
  if (!changes_.empty() || !retry_after_.empty()) shared_.entrance->Apply(changes_, retry_after_);
  changes_.clear();
  retry_after_.clear();
  TellStep();
  TellLoad();
  shared_.heartbeat->Publish();
  if (!batch_->empty()) batch_ = shared_.output->Post(std::move(batch_));
}

}  // namespace berth
