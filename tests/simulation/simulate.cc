#include "simulate.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "fakes/memory_backend.h"
#include "invariants.h"

namespace berth::simulation {
namespace {

constexpr std::int64_t kMostPlans = 20000;

TimePoint At(std::int64_t plan) { return TimePoint(std::chrono::milliseconds(10 * plan)); }

// What a request must put out, whatever ran beside it.
std::vector<std::vector<TokenId>> Expected(const Event& event) {
  std::vector<std::vector<TokenId>> output;
  for (std::int32_t q = 0; q < event.request.n; ++q) {
    std::vector<TokenId> history = event.request.prompt;
    std::vector<TokenId> tokens;
    const std::int64_t length =
        std::min(event.request.max_output_tokens, event.stops_after[static_cast<std::size_t>(q)]);
    for (std::int64_t i = 0; i < length; ++i) {
      history.push_back(test::NextToken(event.request.seed, q, history));
      tokens.push_back(history.back());
    }
    output.push_back(std::move(tokens));
  }
  return output;
}

// The cost of a copy is known from the start, so that scenarios differ in what is swapped.
StepCostModel Prior(const Scenario& scenario) {
  StepCostModel::Coefficients prior = StepCostModel::kPrior;
  prior.back() = ToSeconds(scenario.step_swap_time);
  return StepCostModel(prior);
}

class Run {
 public:
  explicit Run(const Scenario& scenario)
      : scenario_(scenario),
        backend_(scenario.pool),
        loop_(scenario.pool, scenario.policy, &backend_, Prior(scenario)),
        invariants_(&loop_) {
    invariants_.SetPolicy(scenario.policy);
    backend_.set_references([this](BlockId block) { return loop_.pool().references(block); });
    backend_.set_step_time([this](const StepPlan& step) {
      return Duration(std::chrono::milliseconds(1)) + std::chrono::microseconds(50) * std::ssize(step.token_ids) +
             scenario_.step_swap_time * (std::ssize(step.swap_out) + std::ssize(step.swap_in));
    });
    loop_.set_step_time(std::chrono::milliseconds(10));
    loop_.set_stop_rule([this](RequestKey key, std::int32_t choice, const std::vector<TokenId>& output) {
      return std::ssize(output) >= asked_.at(key)->stops_after[static_cast<std::size_t>(choice)];
    });
    loop_.set_after_plan([this](const AdmissionPlan& plan) {
      invariants_.AfterPlan(plan, loop_.admission().plan_number());
      report_.starts += std::ssize(plan.admit);
      report_.preemptions += std::ssize(plan.preempt);
    });
  }

  Report Go() {
    std::size_t next = 0;
    for (std::int64_t plan = 0; plan < kMostPlans && !Broken(); ++plan) {
      now_ = At(plan) + jumped_;
      next = TakeEvents(next, plan);
      for (const RequestKey key : cancels_[plan]) loop_.Cancel(key);
      cancels_.erase(plan);
      invariants_.BeforePlan();
      const bool worked = loop_.Tick(now_);
      if (worked) invariants_.AfterStep();
      ++report_.plans;
      CheckEnded();
      if (!worked && next == scenario_.events.size()) break;
    }
    report_.swapped_out_blocks = loop_.scheduler().swapped_out_blocks();
    report_.swapped_in_blocks = loop_.scheduler().swapped_in_blocks();
    if (!Broken()) Finish();
    return std::move(report_);
  }

 private:
  bool Broken() {
    if (!report_.violation.has_value()) report_.violation = invariants_.violation();
    if (!report_.violation.has_value() && !backend_.fault().empty()) report_.violation = "I9: " + backend_.fault();
    return report_.violation.has_value();
  }

  std::size_t TakeEvents(std::size_t next, std::int64_t plan) {
    // All arrivals of a tick take their places before the first is tokenized.
    std::vector<const Event*> with_ticket;
    for (; next < scenario_.events.size() && scenario_.events[next].plan <= plan; ++next) {
      const Event& event = scenario_.events[next];
      switch (event.kind) {
        case Event::Kind::kArrival: {
          ++report_.requests;
          const test::LoopRequest& r = event.request;
          const Arrival arrival{r.service_class, r.tenant, r.n, false, std::ssize(r.prompt)};
          if (!loop_.desk().Enter(arrival).has_value()) with_ticket.push_back(&event);
          break;
        }
        case Event::Kind::kFault:
          backend_.FailNextStep();
          break;
        case Event::Kind::kClockJump:
          jumped_ += event.jump;
          now_ += event.jump;
          break;
        case Event::Kind::kPolicy:
          Submit(&with_ticket, plan);
          loop_.SetPolicy(event.policy, now_);
          invariants_.SetPolicy(event.policy);
          break;
      }
    }
    Submit(&with_ticket, plan);
    return next;
  }

  void Submit(std::vector<const Event*>* with_ticket, std::int64_t plan) {
    for (const Event* event : *with_ticket) {
      const RequestKey key = loop_.ArriveWithTicket(event->request, now_);
      asked_[key] = event;
      if (event->cancel_delay >= 0) cancels_[plan + event->cancel_delay].push_back(key);
    }
    with_ticket->clear();
  }

  void CheckEnded() {
    for (const auto& [key, outcome] : loop_.ended()) {
      const Event& event = *asked_.at(key);
      if (!outcome.output.empty() && !Broken()) {
        const auto expected = Expected(event);
        for (std::size_t q = 0; q < expected.size(); ++q) {
          const auto& got = outcome.output[q];
          const bool right = outcome.reason.has_value() ? got.size() <= expected[q].size() &&
                                                              std::equal(got.begin(), got.end(), expected[q].begin())
                                                        : got == expected[q];
          if (!right) report_.violation = "output: request " + std::to_string(key) + " put out the wrong tokens";
        }
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
  std::map<RequestKey, const Event*> asked_;
  std::map<std::int64_t, std::vector<RequestKey>> cancels_;
  TimePoint now_{};
  Duration jumped_{};
  Report report_;
};

// "I3 in plan 7: ..." and "I3: ..." are the same kind.
std::string KindOf(const std::string& violation) { return violation.substr(0, violation.find_first_of(" :")); }

}  // namespace

Report Simulate(const Scenario& scenario) { return Run(scenario).Go(); }

Scenario Keep(const Scenario& scenario, const std::vector<std::size_t>& events) {
  Scenario kept = scenario;
  kept.events.clear();
  for (const std::size_t i : events) kept.events.push_back(scenario.events.at(i));
  return kept;
}

std::vector<std::size_t> Shrink(const Scenario& scenario, const std::string& violation) {
  std::vector<std::size_t> kept(scenario.events.size());
  std::iota(kept.begin(), kept.end(), 0);
  for (std::size_t chunk = std::max<std::size_t>(1, kept.size() / 2); chunk > 0;) {
    bool smaller = false;
    for (std::size_t begin = 0; begin < kept.size();) {
      std::vector<std::size_t> fewer = kept;
      const auto first = fewer.begin() + static_cast<std::ptrdiff_t>(begin);
      fewer.erase(first, first + static_cast<std::ptrdiff_t>(std::min(chunk, fewer.size() - begin)));
      const Report report = Simulate(Keep(scenario, fewer));
      if (report.violation.has_value() && KindOf(*report.violation) == KindOf(violation)) {
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
