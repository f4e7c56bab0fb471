// What decisions of the core cost with long queues and many running sequences, and how fast it simulates.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "admission/admission.h"
#include "admission/entry_desk.h"
#include "fakes/core_loop.h"
#include "fakes/cost_backend.h"
#include "scheduler/scheduler.h"

namespace berth {
namespace {

constexpr std::int64_t kRunning = 1024;
constexpr std::int64_t kQueued = 10000;
constexpr Duration kStep = std::chrono::milliseconds(20);

// The thread's own time: what it is paused for on a busy machine is not the core's.
std::chrono::nanoseconds ThreadTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

enum class Claims : std::uint8_t { kNone, kInWaves };

enum class Drafts : std::uint8_t { kNever, kAlways };

// A pool that `running` batch requests fill, and as many waiting ones as asked for behind them: for each that ends
// another arrives. With claims, eight interactive requests arrive in every eighth step and take the places of batch
// ones.
class Crowd {
 public:
  explicit Crowd(std::int64_t queued, Claims claims = Claims::kNone, std::int64_t running = kRunning,
                 Drafts drafts = Drafts::kNever)
      : queued_(queued),
        claims_(claims),
        drafts_(drafts),
        policy_(MakePolicy(running)),
        pool_({40000, 16}, 2),
        desk_(policy_),
        admission_(pool_.shape(), policy_),
        scheduler_(&pool_, policy_) {
    for (std::int64_t i = 0; i < running; ++i) Arrive(1, 300, 300);
    while (this->running() < running) Step();
    for (int i = 0; i < 50; ++i) Step();
  }
  ~Crowd() {
    for (RequestKey key = 0; key < next_key_; ++key) scheduler_.Remove(key);
  }

  // One whole plan and step. Returns what deciding and planning took, without the backend and its results.
  std::chrono::nanoseconds Step() {
    while (waiting() < queued_) Arrive(1, 200 + next_key_ % 200, 400 - next_key_ % 200);
    for (int i = 0; claims_ == Claims::kInWaves && steps_ % 8 == 0 && i < 8; ++i) Arrive(0, 100, 2);
    ++steps_;
    const auto begin = ThreadTime();
    const AdmissionPlan& plan = admission_.Plan(now_, kStep, scheduler_);
    scheduler_.Commit(plan);
    const auto decided = ThreadTime();
    const StepPlan& step = scheduler_.PlanStep(now_);
    const auto end = ThreadTime();
    const auto took = end - begin;
    planning_ = end - decided;
    if (drafts_ == Drafts::kAlways) scheduler_.DraftStep();
    if (beside_step_) beside_step_();
    started_ += std::ssize(plan.admit);
    preempted_ += std::ssize(plan.preempt);
    result_.step = step.step;
    result_.logits.assign(step.logit_rows.size(), {});
    result_.busy = kStep;
    ended_.clear();
    const auto applying = ThreadTime();
    const auto drawn_tokens = scheduler_.ApplyStep(result_);
    applying_ = ThreadTime() - applying;
    for (const DrawnToken& drawn : drawn_tokens) {
      if (admission_.Find(drawn.key)->end_step <= admission_.plan_number() + 1) ended_.push_back(drawn.key);
    }
    for (const StepsLeft& moved : scheduler_.moved_ends()) {
      admission_.SetEndStep(moved.key, admission_.plan_number() + 1 + moved.steps);
    }
    for (const RequestKey key : ended_) {
      scheduler_.Remove(key);
      admission_.Finish(key, now_, 0);
    }
    now_ += kStep;
    return took;
  }

  // The whole decision on one arrival: a place in the queue, every check, and its entry into the queue, or a refusal.
  std::chrono::nanoseconds Decide(Duration time_left) {
    const auto begin = ThreadTime();
    AdmissionRequest request = Request(1, 250, 200);
    request.deadline = now_ + time_left;
    request.needed_time = std::chrono::seconds(1);
    std::optional<Refusal> refusal = desk_.Enter({1, request.tenant, 1, false, 250});
    if (!refusal.has_value()) {
      refusal = admission_.Submit(request, now_);
      if (refusal.has_value()) desk_.Leave(1);
    }
    const auto took = ThreadTime() - begin;
    refused_ += refusal.has_value() ? 1 : 0;
    return took;
  }

  // Called while a step would run.
  void set_beside_step(std::function<void()> work) { beside_step_ = std::move(work); }
  // Of the last Step: planning the step alone, and taking its results.
  std::chrono::nanoseconds planning() const { return planning_; }
  std::chrono::nanoseconds applying() const { return applying_; }
  std::int64_t running() const { return admission_.running(0) + admission_.running(1); }
  std::int64_t waiting() const { return admission_.waiting(0) + admission_.waiting(1); }
  std::int64_t started() const { return started_; }
  std::int64_t preempted() const { return preempted_; }
  std::int64_t refused() const { return refused_; }

 private:
  AdmissionRequest Request(ClassId c, std::int64_t prompt, std::int64_t output) {
    AdmissionRequest request;
    request.key = next_key_++;
    request.service_class = c;
    request.tenant = static_cast<TenantId>(request.key % 8);
    request.prompt_tokens = prompt;
    request.max_output_tokens = output;
    request.arrival = now_;
    request.service_time = std::chrono::seconds(10);
    return request;
  }

  void Arrive(ClassId c, std::int64_t prompt, std::int64_t output) {
    const AdmissionRequest request = Request(c, prompt, output);
    if (admission_.Submit(request, now_).has_value()) return;
    ScheduledRequest scheduled;
    scheduled.key = request.key;
    scheduled.service_class = c;
    scheduled.prompt.resize(static_cast<std::size_t>(prompt));
    std::iota(scheduled.prompt.begin(), scheduled.prompt.end(), static_cast<TokenId>(7 * request.key));
    scheduled.max_output_tokens = output;
    scheduled.sampling = &sampling_;
    scheduler_.Add(std::move(scheduled));
  }

  static Policy MakePolicy(std::int64_t running) {
    Policy policy;
    policy.classes.resize(2);
    policy.classes[0].name = "interactive";
    policy.classes[0].priority = 9;
    policy.classes[0].kv_guarantee_blocks = 4000;
    policy.classes[0].slot_guarantee = 100;
    policy.classes[1].name = "batch";
    policy.classes[1].kv_borrowing_limit_blocks = 40000;
    policy.classes[1].preemptible = true;
    policy.classes[1].max_preemptions = 1000;
    for (ClassPolicy& c : policy.classes) {
      c.max_queued_requests = 100 * kQueued;
      c.max_wait = std::chrono::hours(10);
    }
    policy.tenants.resize(8);
    policy.max_running_sequences = running;
    policy.max_batched_tokens = 2048;
    return policy;
  }

  const std::int64_t queued_;
  const Claims claims_;
  const Drafts drafts_;
  const Policy policy_;
  BlockPool pool_;
  EntryDesk desk_;
  Admission admission_;
  Scheduler scheduler_;
  SamplingSpec sampling_;
  StepResult result_;
  std::vector<RequestKey> ended_;
  std::function<void()> beside_step_;
  std::chrono::nanoseconds planning_{};
  std::chrono::nanoseconds applying_{};
  TimePoint now_{};
  RequestKey next_key_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t started_ = 0;
  std::int64_t preempted_ = 0;
  std::int64_t refused_ = 0;
};

void Report(benchmark::State& state, std::vector<std::chrono::nanoseconds> times) {
  std::ranges::sort(times);
  const auto us = [&](double q) {
    const auto i = static_cast<std::size_t>(q * static_cast<double>(times.size() - 1));
    return std::chrono::duration<double, std::micro>(times[i]).count();
  };
  state.counters["p50_us"] = us(0.5);
  state.counters["p99_us"] = us(0.99);
}

void MeasureSteps(benchmark::State& state, Crowd* crowd) {
  const std::int64_t started = crowd->started();
  const std::int64_t preempted = crowd->preempted();
  std::vector<std::chrono::nanoseconds> times;
  times.reserve(static_cast<std::size_t>(state.max_iterations));
  for (auto _ : state) times.push_back(crowd->Step());
  const auto steps = static_cast<double>(times.size());
  state.counters["running"] = static_cast<double>(crowd->running());
  state.counters["waiting"] = static_cast<double>(crowd->waiting());
  state.counters["starts_a_step"] = static_cast<double>(crowd->started() - started) / steps;
  state.counters["preemptions_a_step"] = static_cast<double>(crowd->preempted() - preempted) / steps;
  Report(state, std::move(times));
}

void PlanStep(benchmark::State& state) {
  Crowd crowd(state.range(0));
  MeasureSteps(state, &crowd);
}
BENCHMARK(PlanStep)->Arg(100)->Arg(1000)->Arg(kQueued)->Iterations(1000)->Unit(benchmark::kMicrosecond);

void PlanStepWithClaims(benchmark::State& state) {
  Crowd crowd(state.range(0), Claims::kInWaves);
  MeasureSteps(state, &crowd);
}
BENCHMARK(PlanStepWithClaims)->Arg(1000)->Arg(kQueued)->Iterations(1000)->Unit(benchmark::kMicrosecond);

// What passes between the end of a step and the start of the next one. Range: how many run, whether the next step is
// drafted while one runs, and whether the step itself leaves nothing of the core's memory in the caches.
void HostGap(benchmark::State& state) {
  Crowd crowd(100, Claims::kNone, state.range(0), state.range(1) != 0 ? Drafts::kAlways : Drafts::kNever);
  std::vector<char> elsewhere(64UL << 20, 1);
  if (state.range(2) != 0) {
    crowd.set_beside_step([&] {
      for (std::size_t i = 0; i < elsewhere.size(); i += 64) ++elsewhere[i];
    });
  }
  std::vector<std::chrono::nanoseconds> planning;
  std::vector<std::chrono::nanoseconds> gaps;
  for (auto _ : state) {
    const auto applying = crowd.applying();
    const auto deciding = crowd.Step();
    planning.push_back(crowd.planning());
    gaps.push_back(applying + deciding);
  }
  const auto median_us = [](std::vector<std::chrono::nanoseconds>* times) {
    std::ranges::sort(*times);
    return std::chrono::duration<double, std::micro>((*times)[times->size() / 2]).count();
  };
  state.counters["plan_step_us"] = median_us(&planning);
  state.counters["gap_us"] = median_us(&gaps);
}
BENCHMARK(HostGap)->ArgsProduct({{128, 1024}, {0, 1}, {0, 1}})->Iterations(1000)->Unit(benchmark::kMicrosecond);

// Range: how many wait, and the seconds left until the deadline; 1 s is too little.
void Decide(benchmark::State& state) {
  Crowd crowd(state.range(0));
  std::vector<std::chrono::nanoseconds> times;
  times.reserve(static_cast<std::size_t>(state.max_iterations));
  for (auto _ : state) times.push_back(crowd.Decide(std::chrono::seconds(state.range(1))));
  state.counters["refused"] = static_cast<double>(crowd.refused()) / static_cast<double>(times.size());
  Report(state, std::move(times));
}
BENCHMARK(Decide)
    ->Args({1000, 1000000})
    ->Args({kQueued, 1000000})
    ->Args({kQueued, 1})
    ->Iterations(5000)
    ->Unit(benchmark::kMicrosecond);

// Waves of requests, all of which start at once and run to their end. Range: their output tokens, and whether the time
// in which nothing is decided is jumped over.
void Simulate(benchmark::State& state) {
  const bool jumps = state.range(1) != 0;
  constexpr std::int64_t kWave = 256;
  const KvPoolShape pool{40000, 16};
  Policy policy;
  policy.classes.resize(1);
  policy.classes[0].name = "only";
  policy.classes[0].kv_guarantee_blocks = pool.num_blocks;
  policy.classes[0].slot_guarantee = kWave;
  policy.classes[0].max_queued_requests = kWave;
  policy.tenants.resize(1);
  policy.max_running_sequences = kWave;
  policy.max_batched_tokens = kWave * 64;
  test::CostBackend backend(pool);
  test::CoreLoop loop(pool, policy, &backend);
  TimePoint now{};
  test::LoopRequest request;
  request.prompt.resize(64);
  request.max_output_tokens = state.range(0);
  std::int64_t requests = 0;
  for (auto _ : state) {
    for (std::int64_t i = 0; i < kWave; ++i) {
      std::iota(request.prompt.begin(), request.prompt.end(), static_cast<TokenId>(100 * i));
      loop.Arrive(request, now);
    }
    while (loop.Tick(now)) {
      now += kStep;
      if (jumps) now += kStep * loop.SkipQuiet(now, kStep);
    }
    requests += std::ssize(loop.ended());
    loop.mutable_ended()->clear();
  }
  state.SetItemsProcessed(requests);
}
BENCHMARK(Simulate)->ArgsProduct({{8, 32, 128, 512}, {0, 1}})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace berth

BENCHMARK_MAIN();
