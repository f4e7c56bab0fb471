#include "fakes/core_loop.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace berth::test {

CoreLoop::CoreLoop(const KvPoolShape& pool, const Policy& policy, Backend* backend, const StepCostModel& cost_model)
    : pool_(pool, static_cast<std::int32_t>(policy.classes.size())),
      desk_(policy),
      admission_(pool, policy),
      scheduler_(&pool_, policy, cost_model, backend->info().max_steps_in_flight),
      backend_(backend) {}

CoreLoop::~CoreLoop() {
  for (const auto& [key, live] : live_) scheduler_.Remove(key);
}

RequestKey CoreLoop::Arrive(const LoopRequest& request, TimePoint now) {
  const Arrival arrival{request.service_class, request.tenant, request.n, false, std::ssize(request.prompt)};
  if (const auto refusal = desk_.Enter(arrival)) {
    const RequestKey key = next_key_++;
    ended_[key] = {refusal->reason, {}, now, std::nullopt, std::nullopt, now, 0};
    return key;
  }
  return ArriveWithTicket(request, now);
}

RequestKey CoreLoop::ArriveWithTicket(const LoopRequest& request, TimePoint now) {
  const RequestKey key = next_key_++;
  AdmissionRequest asked;
  asked.key = key;
  asked.service_class = request.service_class;
  asked.tenant = request.tenant;
  asked.prompt_tokens = std::ssize(request.prompt);
  asked.max_output_tokens = request.max_output_tokens;
  asked.n = request.n;
  asked.arrival = now;
  asked.deadline = request.deadline;
  asked.overload = admission_.policy().classes[static_cast<std::size_t>(request.service_class)].overload;
  if (request.judge_deadline) {
    const std::int64_t required = scheduler_.RequiredTokens(request.service_class, request.max_output_tokens);
    asked.needed_time = scheduler_.PredictTime(asked.prompt_tokens, required, false);
  }
  asked.service_time = scheduler_.PredictTime(asked.prompt_tokens, request.max_output_tokens, false);
  if (const auto refusal = admission_.Submit(asked, now)) {
    desk_.Leave(request.service_class);
    ended_[key] = {refusal->reason, {}, now, std::nullopt, std::nullopt, now, 0};
    return key;
  }
  EndWhatEndedBetweenPlans(now);
  auto live = std::make_unique<Live>();
  live->request = request;
  live->sampling->n = request.n;
  live->sampling->seed = request.seed;
  live->outcome.arrival = now;
  live->outcome.output.resize(static_cast<std::size_t>(request.n));
  live->ended.resize(static_cast<std::size_t>(request.n));
  live->stopping.resize(static_cast<std::size_t>(request.n));
  ScheduledRequest scheduled;
  scheduled.key = key;
  scheduled.service_class = request.service_class;
  scheduled.deadline = request.judge_deadline ? request.deadline : kNoDeadline;
  scheduled.prompt = request.prompt;
  scheduled.max_output_tokens = request.max_output_tokens;
  scheduled.salt = request.salt;
  scheduled.sampling = live->sampling.get();
  scheduled.lender = live->sampling;
  scheduled.prompt_logprobs = request.prompt_logprobs;
  scheduler_.Add(std::move(scheduled));
  live_[key] = std::move(live);
  return key;
}

void CoreLoop::SetPolicy(const Policy& policy, TimePoint now) {
  desk_.SetPolicy(policy);
  scheduler_.SetPolicy(policy);
  admission_.SetPolicy(policy);
  EndWhatEndedBetweenPlans(now);
}

void CoreLoop::EndWhatEndedBetweenPlans(TimePoint now) {
  for (const auto& ending : admission_.TakeEnded()) {
    desk_.Leave(ClassOf(ending.key));
    scheduler_.Remove(ending.key);
    End(ending.key, ending.refusal.reason, now);
  }
}

void CoreLoop::End(RequestKey key, std::optional<RefusalReason> reason, TimePoint now) {
  const auto found = live_.find(key);
  BERTH_CHECK_MSG(found != live_.end(), "a request ended twice");
  Outcome& outcome = found->second->outcome;
  outcome.reason = reason;
  outcome.end = now;
  BERTH_CHECK(ended_.emplace(key, std::move(outcome)).second);
  live_.erase(found);
  progressed_ = true;
}

std::vector<CoreLoop::View> CoreLoop::Views() const {
  std::vector<View> views;
  for (const auto& [key, live] : live_) {
    views.push_back({key, &live->request, std::ranges::count(live->ended, false), scheduler_.Blocks(key) != nullptr});
  }
  return views;
}

// Before the plan is committed: who waits is who has no blocks.
void CoreLoop::UpdateDesk(const AdmissionPlan& plan) {
  for (const auto& ending : plan.end) {
    if (scheduler_.Blocks(ending.key) == nullptr) desk_.Leave(ClassOf(ending.key));
  }
  for (const RequestKey key : plan.preempt) desk_.Park(ClassOf(key));
  for (const auto& ending : plan.too_often) desk_.Leave(ClassOf(ending.key));
  for (const auto& start : plan.admit) desk_.Leave(ClassOf(start.key));
  for (ClassId c = 0; c < std::ssize(admission_.policy().classes); ++c) {
    desk_.SetRetryAfter(c, admission_.RetryAfter(c));
  }
}

bool CoreLoop::Tick(TimePoint now) {
  progressed_ = false;
  last_step_ = nullptr;
  result_.busy = Duration(0);
  ApplyLateStops(now);
  if (live_.empty()) {
    while (!in_flight_.empty()) Collect(now);
    return progressed_;
  }
  const Duration step_time = fixed_step_time_.value_or(scheduler_.PredictStep());
  const AdmissionPlan& plan = admission_.Plan(now, step_time, scheduler_);
  UpdateDesk(plan);
  scheduler_.Commit(plan);
  for (const auto& ending : plan.end) End(ending.key, ending.refusal.reason, now);
  for (const auto& ending : plan.too_often) End(ending.key, ending.refusal.reason, now);
  for (const RequestKey key : plan.preempt) {
    if (live_.contains(key)) ++live_[key]->outcome.preemptions;
  }
  for (const auto& start : plan.admit) {
    Outcome& outcome = live_[start.key]->outcome;
    if (!outcome.first_start.has_value()) outcome.first_start = now;
    progressed_ = true;
  }
  if (after_plan_) after_plan_(plan);
  RunStep(now);
  return true;
}

std::int64_t CoreLoop::SkipQuiet(TimePoint now, Duration step_time, TimePoint until) {
  BERTH_CHECK(!stop_rule_);
  until = std::min(until, admission_.QuietUntil());
  if (until <= now) return 0;
  const std::int64_t in_time = until == TimePoint::max() ? kUnlimited : (until - now) / step_time;
  const std::int64_t steps = std::min(in_time, scheduler_.QuietSteps());
  if (steps <= 0) return 0;
  constexpr TokenId kToken = 1;
  scheduler_.SkipSteps(steps, kToken);
  admission_.SkipPlans(steps);
  for (auto& [key, live] : live_) {
    if (scheduler_.Blocks(key) == nullptr) continue;
    for (std::size_t q = 0; q < live->ended.size(); ++q) {
      if (live->ended[q]) continue;
      std::vector<TokenId>& output = live->outcome.output[q];
      output.insert(output.end(), static_cast<std::size_t>(steps), kToken);
      live->tokens += steps;
    }
  }
  return steps;
}

void CoreLoop::RunStep(TimePoint now) {
  const StepPlan& step = scheduler_.PlanStep(now);
  for (const HopelessRequest& r : scheduler_.hopeless()) {
    admission_.EndInfeasible(r.key, now + r.predicted, r.computed_tokens);
  }
  if (!step.empty()) {
    BERTH_CHECK(backend_->Submit(step).ok());
    in_flight_.push_back(&step);
    const bool draft = drafts_ && drafts_(step);
    if (draft && backend_->info().max_steps_in_flight == 1) scheduler_.DraftStep();
    progressed_ = true;
  }
  const bool more_may_follow = !step.empty() && std::ssize(in_flight_) < backend_->info().max_steps_in_flight;
  if (!in_flight_.empty() && !more_may_follow) Collect(now);
  while (broken_) Collect(now);
}

void CoreLoop::Collect(TimePoint now) {
  last_step_ = in_flight_.front();
  in_flight_.pop_front();
  progressed_ = true;
  last_step_failed_ = !backend_->Await(&result_).ok();
  BERTH_CHECK_MSG(last_step_failed_ || !broken_, "a step behind one that failed did not fail");
  if (last_step_failed_) {
    broken_ = !in_flight_.empty();
    for (const RequestKey key : scheduler_.DropStep()) admission_.Cancel(key, RefusalReason::kBackendFault);
    return;
  }
  for (const DrawnToken& drawn : scheduler_.ApplyStep(result_)) TakeToken(drawn, now + result_.busy);
  for (const StepsLeft& moved : scheduler_.moved_ends()) {
    if (live_.contains(moved.key)) admission_.SetEndStep(moved.key, admission_.plan_number() + 1 + moved.steps);
  }
}

void CoreLoop::TakeToken(const DrawnToken& drawn, TimePoint now) {
  Live& live = *live_.at(drawn.key);
  const auto q = static_cast<std::size_t>(drawn.choice);
  std::vector<TokenId>& output = live.outcome.output[q];
  output.push_back(drawn.token);
  ++live.tokens;
  if (!live.outcome.first_token.has_value()) live.outcome.first_token = now;
  if (std::ssize(output) >= live.request.max_output_tokens) return EndChoice(drawn.key, drawn.choice, now);
  if (live.stopping[q] || !stop_rule_ || !stop_rule_(drawn.key, drawn.choice, output)) return;
  if (stop_lag_ == 0) return EndChoice(drawn.key, drawn.choice, now);
  live.stopping[q] = true;
  late_stops_.push_back({ticks_ + stop_lag_, drawn.key, drawn.choice});
}

void CoreLoop::EndChoice(RequestKey key, std::int32_t choice, TimePoint now) {
  Live& live = *live_.at(key);
  live.ended[static_cast<std::size_t>(choice)] = true;
  if (std::ranges::count(live.ended, false) > 0) {
    scheduler_.EndChoice(key, choice, admission_.BlocksAfterEndChoice(key), &released_);
    admission_.EndChoice(key, released_, now);
    return;
  }
  scheduler_.Remove(key);
  admission_.Finish(key, now, std::ssize(live.request.prompt) + live.tokens);
  End(key, std::nullopt, now);
}

// A choice that is parked ends once it runs again; a request that has no other choice left need not.
void CoreLoop::ApplyLateStops(TimePoint now) {
  ++ticks_;
  std::erase_if(late_stops_, [&](const LateStop& stop) {
    if (stop.tick > ticks_) return false;
    const auto found = live_.find(stop.key);
    if (found == live_.end() || found->second->ended[static_cast<std::size_t>(stop.choice)]) return true;
    if (scheduler_.Blocks(stop.key) == nullptr) {
      const Live& parked = *found->second;
      bool all = true;
      for (std::size_t q = 0; q < parked.ended.size(); ++q) all = all && (parked.ended[q] || parked.stopping[q]);
      if (all) Cancel(stop.key);
      return false;
    }
    EndChoice(stop.key, stop.choice, now);
    return true;
  });
}

}  // namespace berth::test
