#include "threaded_run.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "counted_run.h"
#include "engine/engine.h"
#include "fakes/fake_clock.h"
#include "fakes/word_tokenizer.h"
#include "random_policy.h"
#include "threaded_backend.h"
#include "watched_request.h"

namespace berth::simulation {
namespace {

constexpr std::size_t kCallers = 3;
constexpr std::chrono::seconds kPatience(60);
constexpr std::int32_t kContext = 1 << 20;

using RealTime = std::chrono::steady_clock;

void Pause() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

class ThreadedRun {
 public:
  explicit ThreadedRun(const Scenario& scenario)
      : scenario_(scenario),
        tokenizer_(1000),
        backend_(scenario, kContext, &clock_),
        origin_(clock_.Now()),
        give_up_(RealTime::now() + kPatience),
        random_(scenario.seed),
        last_policy_(scenario.policy),
        counted_(backend_.info().pool, scenario.policy, &clock_),
        engine_(std::make_unique<Engine>(Options(scenario, counted_.sink()), &backend_, &tokenizer_, &clock_)) {}

  ThreadedReport Go() {
    DealEvents();
    std::vector<std::jthread> callers;
    for (Caller& caller : callers_) callers.emplace_back([this, &caller] { caller.Run(this); });
    std::jthread time([this](const std::stop_token& stop) { MoveTime(stop); });
    callers.clear();
    EndEngine();
    time.request_stop();
    time.join();
    Judge();
    return std::move(report_);
  }

 private:
  // Does its share of the scenario, each thing when its time has come.
  struct Caller {
    std::multimap<TimePoint, std::function<void()>> agenda;  // its own thread's, and before that the run's
    std::mt19937_64 random;
    std::vector<std::shared_ptr<WatchedRequest>> requests;

    void Run(ThreadedRun* run) {
      while (!agenda.empty()) {
        auto next = agenda.extract(agenda.begin());
        while (run->clock_.Now() < next.key()) run->Wait();
        next.mapped()();
      }
    }
  };

  static EngineOptions Options(const Scenario& scenario, MetricSink* metrics) {
    EngineOptions options;
    options.metrics = metrics;
    options.max_context_tokens = kContext;
    options.policy = scenario.policy;
    options.calibration_steps = 0;  // its tables show no sequence's history
    options.probe_interval = std::chrono::milliseconds(1);
    return options;
  }

  void Wait() const {
    if (RealTime::now() > give_up_) {
      std::fprintf(stderr, "the engine does not come to an end\n");
      std::abort();
    }
    Pause();
  }

  void Bad(const std::string& what) {
    const std::lock_guard lock(mutex_);
    if (report_.violation.empty()) report_.violation = what;
  }

  TimePoint At(std::int64_t plan) const { return origin_ + Plans(plan); }

  void DealEvents() {
    for (std::size_t c = 0; c < kCallers; ++c) callers_[c].random.seed(scenario_.seed * kCallers + c);
    std::size_t next = 0;
    for (const Event& event : scenario_.events) {
      Caller& caller = callers_[event.kind == Event::Kind::kArrival ? next++ % kCallers : 0];
      caller.agenda.emplace(At(event.plan), [this, &caller, &event] { Happen(event, &caller); });
    }
  }

  void Happen(const Event& event, Caller* caller) {
    switch (event.kind) {
      case Event::Kind::kArrival:
        return Arrive(event, caller);
      case Event::Kind::kFault:
        return backend_.FailAStep();
      case Event::Kind::kClockJump:
        return clock_.Advance(event.jump);
      case Event::Kind::kPolicy:
        NoteBounds(event.policy);
        last_policy_ = event.policy;
        counted_.OnPolicy(event.policy);
        return engine_->SetPolicy(event.policy);
      case Event::Kind::kDraining:
        // It waits for the end of everything: not this caller's to do.
        draining_ = true;
        drain_ = std::jthread([this] { engine_->Shutdown(Plans(20)); });
        return;
    }
  }

  // An id that a request had which has ended is free; now and then one that may still live.
  std::string NextId(const Event& event, Caller* caller, bool* free) {
    auto& requests = caller->requests;
    *free = true;
    if (!requests.empty() && (event.duplicate_id || caller->random() % 4 == 0)) {
      const WatchedRequest& last = *requests[caller->random() % requests.size()];
      *free = last.ended() || last.spec().tenant != event.request.tenant;
      // Two ended requests may have had the same id, and a third may have it now.
      const bool alone = std::ranges::count_if(requests, [&](const auto& other) {
                           return other->spec().request_id == last.spec().request_id;
                         }) == 1;
      if (event.duplicate_id || (*free && alone)) {
        *free = *free && alone;
        return last.spec().request_id;
      }
      *free = true;
    }
    return "caller " + std::to_string(caller - callers_.data()) + " request " + std::to_string(requests.size()) + " " +
           std::to_string(caller->random());
  }

  void Arrive(const Event& event, Caller* caller) {
    if (event.request.tenant >= std::ssize(engine_->policy()->tenants)) return;  // whoever names tenants knows them
    ++arrivals_;
    bool id_is_free = true;
    const std::string id = NextId(event, caller, &id_is_free);
    std::variant<QueueTicket, Refusal> ticket =
        engine_->TakeTicket({.request_id = id,
                             .service_class = event.request.service_class,
                             .tenant = event.request.tenant,
                             .n = event.request.n,
                             .least_prompt_tokens = std::ssize(event.request.prompt)});
    if (const auto* refusal = std::get_if<Refusal>(&ticket)) {
      if (refusal->reason == RefusalReason::kDuplicateRequestId && id_is_free)
        Bad("the id of an ended request is taken");
      return counted_.OnRefusal(event.request.service_class, event.request.tenant, refusal->reason);
    }
    if (event.gives_ticket_back) return;
    auto request = std::make_shared<WatchedRequest>(event, id, origin_, tokenizer_, &caller->random);
    request->set_on_end([this](const RequestEnded& end) { counted_.OnEnd(end); });
    caller->requests.push_back(request);
    const TicketNumber number = std::get<QueueTicket>(ticket).number();
    PlanCancel(event, number, request, caller);
    const auto held = std::make_shared<std::optional<QueueTicket>>(std::get<QueueTicket>(std::move(ticket)));
    const auto submit = [this, request, held] {
      engine_->Submit(*std::exchange(*held, std::nullopt), request->MakeRequest(clock_.Now()), request);
    };
    if (event.tokenizing == 0) return submit();
    caller->agenda.emplace(clock_.Now() + Plans(event.tokenizing), submit);
  }

  // By its client, at some time or at some token; a cancel may come before its request.
  void PlanCancel(const Event& event, TicketNumber ticket, const std::shared_ptr<WatchedRequest>& request,
                  Caller* caller) {
    if (caller->random() % 20 == 0) {
      request->CancelAt(static_cast<std::int64_t>(caller->random() % 8), [this, ticket] { engine_->Cancel(ticket); });
    }
    if (event.cancel_delay < 0) return;
    const std::int64_t delay = event.cancel_delay + (caller->random() % 2 == 0 ? 0 : event.tokenizing);
    const auto cancel = [this, ticket, request] {
      request->NoteCancelled();
      engine_->Cancel(ticket);
    };
    if (delay == 0 && caller->random() % 2 == 0) return cancel();
    caller->agenda.emplace(clock_.Now() + Plans(delay), cancel);
  }

  void NoteBounds(const Policy& policy) {
    const std::lock_guard lock(mutex_);
    bounds_.resize(std::max(bounds_.size(), policy.classes.size()));
    for (std::size_t c = 0; c < policy.classes.size(); ++c) {
      bounds_[c] = std::max(bounds_[c], policy.classes[c].max_queued_requests);
    }
  }

  // Time passes also while nothing runs. And whoever looks finds no queue beyond its bounds.
  void MoveTime(const std::stop_token& stop) {
    NoteBounds(scenario_.policy);
    std::int64_t steps = 0;
    while (!stop.stop_requested()) {
      if (std::exchange(steps, backend_.steps()) == steps && !backend_.busy()) clock_.Advance(Plans(1));
      const Engine::Load load = engine_->load();
      {
        const std::lock_guard lock(mutex_);
        for (std::size_t c = 0; c < std::min(load.classes.size(), bounds_.size()); ++c) {
          if (load.classes[c].queued_requests > bounds_[c] && report_.violation.empty()) {
            report_.violation = "I10: more requests wait than may";
          }
        }
      }
      Pause();
    }
  }

  bool AllEnded() const {
    return std::ranges::all_of(callers_, [](const Caller& caller) {
      return std::ranges::all_of(caller.requests, [](const auto& request) { return request->ended(); });
    });
  }

  // In one of the ways in which a server ends.
  void EndEngine() {
    const std::uint64_t way = random_() % 3;
    if (way == 0 && !draining_) {
      // What a class on hold keeps parked would wait for ever.
      for (ClassPolicy& c : last_policy_.classes) c.stop = ClassStop::kNone;
      counted_.OnPolicy(last_policy_);
      engine_->SetPolicy(last_policy_);
      while (!AllEnded()) Wait();
      while (!engine_->serving()) Wait();  // it has found out by itself that the backend is back
    } else {
      draining_ = true;
      std::jthread other([this] { engine_->Shutdown(Plans(50)); });
      engine_->Shutdown(way == 1 ? Plans(5) : Duration::zero());
      if (!AllEnded()) Bad("I7: Shutdown returned before everything had ended");
    }
    if (drain_.joinable()) drain_.join();
    const Engine::Load load = engine_->load();
    if (load.running_requests() + load.queued_requests() + load.parked_requests() != 0)
      Bad("I7: the load shows ended requests");
    // A step that tries whether a failed backend is back holds a block of its own for its time.
    while (engine_->load().held_blocks != 0 || engine_->load().reserved_blocks() != 0) Wait();
  }

  void Judge() {
    engine_.reset();  // crashes where the pool has lost a block
    if (!backend_.fault().empty()) Bad("I9: " + backend_.fault());
    report_.requests = arrivals_;
    report_.failed_steps = backend_.failures();
    report_.swapped_blocks = backend_.swapped_blocks();
    const WatchedRequest::Circumstances circumstances{
        .faults = backend_.failures() > 0,
        .policy_changes = std::ranges::count(scenario_.events, Event::Kind::kPolicy, &Event::kind) > 0,
        .draining = draining_};
    std::vector<std::shared_ptr<WatchedRequest>> all;
    for (const Caller& caller : callers_) all.insert(all.end(), caller.requests.begin(), caller.requests.end());
    if (const std::string miscounted = counted_.Violation(all); !miscounted.empty()) Bad(miscounted);
    for (const Caller& caller : callers_) {
      for (const auto& request : caller.requests) {
        ++report_.submitted;
        report_.complete += request->completed() ? 1 : 0;
        report_.preemptions += request->usage().preemptions;
        if (!request->ended()) Bad("I7: a request never ended");
        if (std::string violation = request->Violation(circumstances, tokenizer_); !violation.empty()) Bad(violation);
      }
    }
  }

  const Scenario& scenario_;
  test::FakeClock clock_;
  const test::WordTokenizer tokenizer_;
  ThreadedBackend backend_;
  const TimePoint origin_;
  const RealTime::time_point give_up_;
  std::mt19937_64 random_;
  Policy last_policy_;  // the first caller's, and then the run's
  CountedRun counted_;
  std::unique_ptr<Engine> engine_;
  std::array<Caller, kCallers> callers_;
  std::atomic<std::int64_t> arrivals_ = 0;
  std::atomic<bool> draining_ = false;
  std::jthread drain_;

  std::mutex mutex_;
  std::vector<std::int64_t> bounds_;  // guarded by mutex_; per class, the highest so far
  ThreadedReport report_;             // guarded by mutex_ while the engine runs
};

}  // namespace

ThreadedReport RunThreaded(const Scenario& scenario) { return ThreadedRun(scenario).Go(); }

}  // namespace berth::simulation
