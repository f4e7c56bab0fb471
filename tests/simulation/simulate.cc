#include "simulate.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "admission/policy_check.h"
#include "base/check.h"
#include "fakes/memory_backend.h"
#include "fakes/step_digest.h"
#include "invariants.h"
#include "quotas.h"
#include "random_policy.h"

namespace berth::simulation {
namespace {

constexpr std::int64_t kMostPlans = 20000;
constexpr std::int64_t kHoldsEndAfter = 30;  // plans since the last event, so that what they hold can end

bool Holds(const Policy& policy) {
  return std::ranges::any_of(policy.classes, [](const ClassPolicy& c) { return c.stop == ClassStop::kHold; });
}

// Whether a choice put out what it must, whatever ran beside it. One that is told late to end goes on until then.
bool IsRight(const Event& event, std::int32_t choice, const test::Outcome& outcome, std::int64_t stop_lag) {
  const std::vector<TokenId>& output = outcome.output[static_cast<std::size_t>(choice)];
  const std::int64_t due =
      std::min(event.request.max_output_tokens, event.stops_after[static_cast<std::size_t>(choice)]);
  const std::int64_t most = std::min(event.request.max_output_tokens, stop_lag > 0 ? kUnlimited : due);
  if (std::ssize(output) > most || (!outcome.reason.has_value() && std::ssize(output) < due)) return false;
  std::vector<TokenId> history = event.request.prompt;
  for (const TokenId token : output) {
    history.push_back(test::NextToken(event.request.seed, choice, history));
    if (token != history.back()) return false;
  }
  return true;
}

// The cost of a copy is known from the start, so that scenarios differ in what is swapped.
StepCostModel Prior(const Scenario& scenario) {
  StepCostModel::Coefficients prior = StepCostModel::kPrior;
  prior.back() = ToSeconds(scenario.step_swap_time);
  return StepCostModel(prior);
}

enum class Drafts : std::uint8_t { kNever, kSometimes };

class Run {
 public:
  Run(const Scenario& scenario, Drafts drafts)
      : scenario_(scenario),
        backend_(scenario.pool, 1 << 20, scenario.max_steps_in_flight),
        loop_(scenario.pool, scenario.policy, &backend_, Prior(scenario)),
        invariants_(&loop_),
        quotas_(&loop_, scenario.policy),
        policy_(scenario.policy),
        tickets_(scenario.policy.classes.size()) {
    CheckPolicy();
    invariants_.SetPolicy(scenario.policy, tickets_);
    backend_.set_references([this](BlockId block) { return loop_.pool().references(block); });
    backend_.set_step_time([this](const StepPlan& step) {
      const std::int64_t copies = std::ssize(step.swap_out) + std::ssize(step.swap_in);
      return std::min<Duration>(scenario_.step_time + scenario_.step_token_time * std::ssize(step.token_ids) +
                                    scenario_.step_swap_time * copies,
                                Plans(1));
    });
    backend_.set_fails([this](const StepPlan& step) {
      return !(step.swap_out.empty() && step.swap_in.empty()) && ++swaps_ == scenario_.failing_swap;
    });
    loop_.set_step_time(Plans(1));
    loop_.set_drafts([this, drafts](const StepPlan& step) {
      report_.steps.push_back(test::DigestOf(step));
      const auto coin = (scenario_.seed + static_cast<std::uint64_t>(step.step)) * 0x9e3779b97f4a7c15ULL;
      return drafts == Drafts::kSometimes && coin >> 62 != 0;
    });
    loop_.set_stop_rule([this](RequestKey key, std::int32_t choice, const std::vector<TokenId>& output) {
      return std::ssize(output) >= asked_.at(key)->stops_after[static_cast<std::size_t>(choice)];
    });
    loop_.set_stop_lag(scenario.stop_lag);
    loop_.set_after_plan([this](const AdmissionPlan& plan) {
      invariants_.AfterPlan(plan, loop_.admission().plan_number());
      quotas_.AfterPlan();
      report_.starts += std::ssize(plan.admit);
      report_.preemptions += std::ssize(plan.preempt);
    });
  }

  Report Go() {
    std::size_t next = 0;
    std::int64_t last_event = 0;
    for (std::int64_t plan = 0; plan < kMostPlans && !Broken(); ++plan) {
      now_ = TimePoint(Plans(plan)) + jumped_;
      const std::size_t before = next;
      next = TakeEvents(next, plan);
      if (next > before) last_event = plan;
      Submit(&tokenized_[plan], plan);
      tokenized_.erase(plan);
      const bool more = next < scenario_.events.size() || !tokenized_.empty();
      if (!more && plan >= last_event + kHoldsEndAfter) EndHolds();
      for (const RequestKey key : cancels_[plan]) loop_.Cancel(key);
      cancels_.erase(plan);
      invariants_.BeforePlan(tickets_);
      const bool worked = loop_.Tick(now_);
      if (worked) invariants_.AfterStep();
      ++report_.plans;
      CheckEnded();
      if (!worked && !more) break;
    }
    report_.swapped_out_blocks = loop_.scheduler().swapped_out_blocks();
    report_.swapped_in_blocks = loop_.scheduler().swapped_in_blocks();
    if (!Broken()) Finish();
    return std::move(report_);
  }

 private:
  bool Broken() {
    if (!report_.violation.has_value()) report_.violation = invariants_.violation();
    if (!report_.violation.has_value()) report_.violation = quotas_.violation();
    if (!report_.violation.has_value() && !backend_.fault().empty()) report_.violation = "I9: " + backend_.fault();
    return report_.violation.has_value();
  }

  void CheckPolicy() const { BERTH_CHECK(ValidatePolicy(policy_, scenario_.pool).ok()); }

  void SetPolicy(const Policy& policy) {
    policy_ = policy;
    CheckPolicy();
    invariants_.SetPolicy(policy, tickets_);
    tickets_.resize(policy.classes.size());
    loop_.SetPolicy(policy, now_);
    quotas_.SetPolicy(policy);
  }

  // Whoever is held must end before the simulation can.
  void EndHolds() {
    if (!Holds(policy_)) return;
    Policy policy = policy_;
    for (ClassPolicy& c : policy.classes) {
      if (c.stop == ClassStop::kHold) c.stop = ClassStop::kNone;
    }
    SetPolicy(policy);
  }

  std::size_t TakeEvents(std::size_t next, std::int64_t plan) {
    // All arrivals of a tick take their places before the first is tokenized.
    std::vector<const Event*> with_ticket;
    for (; next < scenario_.events.size() && scenario_.events[next].plan <= plan; ++next) {
      const Event& event = scenario_.events[next];
      switch (event.kind) {
        case Event::Kind::kArrival:
          if (!TakesTicket(event)) break;
          if (event.tokenizing > 0) {
            tokenized_[plan + event.tokenizing].push_back(&event);
          } else {
            with_ticket.push_back(&event);
          }
          break;
        case Event::Kind::kFault:
          backend_.FailNextStep();
          break;
        case Event::Kind::kClockJump:
          jumped_ += event.jump;
          now_ += event.jump;
          break;
        case Event::Kind::kPolicy:
          Submit(&with_ticket, plan);
          SetPolicy(event.policy);
          break;
        case Event::Kind::kDraining:
          Submit(&with_ticket, plan);
          loop_.desk().StartDraining();
          break;
      }
    }
    Submit(&with_ticket, plan);
    return next;
  }

  bool TakesTicket(const Event& event) {
    const test::LoopRequest& r = event.request;
    if (r.tenant >= std::ssize(policy_.tenants)) return false;  // whoever asks is known before admission is
    ++report_.requests;
    const Arrival arrival{r.service_class, r.tenant, r.n, event.duplicate_id, std::ssize(r.prompt)};
    if (loop_.desk().Enter(arrival).has_value()) return false;
    ++tickets_[static_cast<std::size_t>(r.service_class)];
    return true;
  }

  void Submit(std::vector<const Event*>* with_ticket, std::int64_t plan) {
    for (const Event* event : *with_ticket) {
      const ClassId c = event->request.service_class;
      --tickets_[static_cast<std::size_t>(c)];
      if (event->gives_ticket_back) {
        loop_.desk().Leave(c);
        continue;
      }
      const RequestKey key = loop_.ArriveWithTicket(event->request, now_);
      asked_[key] = event;
      quotas_.AfterSubmit(event->request, key, now_);
      if (event->cancel_delay >= 0) cancels_[plan + event->cancel_delay].push_back(key);
    }
    with_ticket->clear();
  }

  void CheckEnded() {
    for (const auto& [key, outcome] : loop_.ended()) {
      const Event& event = *asked_.at(key);
      quotas_.AfterEnd(event.request, key, outcome);
      for (std::int32_t q = 0; q < std::ssize(outcome.output) && !Broken(); ++q) {
        if (IsRight(event, q, outcome, scenario_.stop_lag)) continue;
        report_.violation = "output: request " + std::to_string(key) + " put out the wrong tokens";
      }
      report_.complete += outcome.reason.has_value() ? 0 : 1;
    }
    loop_.mutable_ended()->clear();
  }

  void Finish() {
    if (loop_.live() > 0) report_.violation = "I7: " + std::to_string(loop_.live()) + " requests never ended";
    invariants_.AtEnd();
    Broken();
  }

  const Scenario& scenario_;
  test::MemoryBackend backend_;
  test::CoreLoop loop_;
  Invariants invariants_;
  Quotas quotas_;
  Policy policy_;
  std::vector<std::int64_t> tickets_;  // out, by class
  std::map<RequestKey, const Event*> asked_;
  std::map<std::int64_t, std::vector<const Event*>> tokenized_;  // by the plan before which they are submitted
  std::map<std::int64_t, std::vector<RequestKey>> cancels_;
  TimePoint now_{};
  Duration jumped_{};
  std::int64_t swaps_ = 0;  // steps that swapped
  Report report_;
};

}  // namespace

Report Simulate(const Scenario& scenario) {
  Report report = Run(scenario, Drafts::kSometimes).Go();
  if (report.violation.has_value() || scenario.seed % 4 != 0 || scenario.max_steps_in_flight > 1) return report;
  const std::vector<std::uint64_t> steps = Run(scenario, Drafts::kNever).Go().steps;
  if (report.steps != steps) {
    const auto differs = std::ranges::mismatch(report.steps, steps);
    report.violation =
        "draft: step " + std::to_string(differs.in1 - report.steps.begin()) + " is not what is planned without drafts";
  }
  return report;
}

Scenario Keep(const Scenario& scenario, const std::vector<std::size_t>& events) {
  Scenario kept = scenario;
  kept.events.clear();
  for (const std::size_t i : events) kept.events.push_back(scenario.events.at(i));
  return kept;
}

// "I3 in plan 7: ..." and "I3: ..." are the same kind.
bool SameKind(const std::string& a, const std::string& b) {
  const auto kind = [](const std::string& violation) { return violation.substr(0, violation.find_first_of(" :")); };
  return kind(a) == kind(b);
}

std::vector<std::size_t> Shrink(const Scenario& scenario, const std::function<bool(const Scenario&)>& fails) {
  std::vector<std::size_t> kept(scenario.events.size());
  std::iota(kept.begin(), kept.end(), 0);
  for (std::size_t chunk = std::max<std::size_t>(1, kept.size() / 2); chunk > 0;) {
    bool smaller = false;
    for (std::size_t begin = 0; begin < kept.size();) {
      std::vector<std::size_t> fewer = kept;
      const auto first = fewer.begin() + static_cast<std::ptrdiff_t>(begin);
      fewer.erase(first, first + static_cast<std::ptrdiff_t>(std::min(chunk, fewer.size() - begin)));
      if (fails(Keep(scenario, fewer))) {
        kept = std::move(fewer);
        smaller = true;
      } else {
        begin += chunk;
      }
    }
    if (!smaller || chunk > 1) chunk /= 2;
  }
  return kept;
}

}  // namespace berth::simulation
