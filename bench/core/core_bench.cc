// What decisions of the core cost with long queues and many running sequences.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <vector>

#include "admission/admission.h"
#include "admission/entry_desk.h"
#include "scheduler/scheduler.h"

namespace berth {
namespace {

constexpr std::int64_t kRunning = 1024;
constexpr std::int64_t kQueued = 10000;

// A pool that `kRunning` requests fill, and as many queued ones as asked for behind them.
class Crowd {
 public:
  explicit Crowd(std::int64_t queued) : pool_({40000, 16}, 2), desk_(MakePolicy()), scheduler_(&pool_, MakePolicy()) {
    admission_ = std::make_unique<Admission>(pool_.shape(), MakePolicy());
    for (std::int64_t i = 0; i < kRunning; ++i) Arrive(1, 300, 300);
    while (running_ < kRunning) Step();
    for (std::int64_t i = 0; i < queued; ++i) Arrive(i % 4 == 0 ? 0 : 1, 200 + i % 100, 400);
    for (int i = 0; i < 50; ++i) Step();
  }
  ~Crowd() {
    for (RequestKey key = 0; key < next_key_; ++key) scheduler_.Remove(key);
  }

  void Arrive(ClassId c, std::int64_t prompt, std::int64_t output) {
    AdmissionRequest request;
    request.key = next_key_++;
    request.service_class = c;
    request.tenant = static_cast<TenantId>(request.key % 8);
    request.prompt_tokens = prompt;
    request.max_output_tokens = output;
    request.arrival = now_;
    request.service_time = std::chrono::seconds(10);
    if (admission_->Submit(request, now_).has_value()) return;
    ScheduledRequest scheduled;
    scheduled.key = request.key;
    scheduled.service_class = c;
    scheduled.prompt.resize(static_cast<std::size_t>(prompt));
    std::iota(scheduled.prompt.begin(), scheduled.prompt.end(), static_cast<TokenId>(7 * request.key));
    scheduled.max_output_tokens = output;
    scheduled.sampling = &sampling_;
    scheduler_.Add(std::move(scheduled));
  }

  // One whole plan and step. Returns what deciding and planning took, without the backend and its results.
  std::chrono::nanoseconds Step() {
    const auto begin = std::chrono::steady_clock::now();
    const AdmissionPlan& plan = admission_->Plan(now_, std::chrono::milliseconds(20), scheduler_);
    scheduler_.Commit(plan);
    const StepPlan& step = scheduler_.PlanStep(now_);
    const auto took = std::chrono::steady_clock::now() - begin;
    running_ += static_cast<std::int64_t>(plan.admit.size());
    result_.step = step.step;
    result_.logits.assign(step.logit_rows.size(), {});
    result_.busy = std::chrono::milliseconds(20);
    ended_.clear();
    for (const DrawnToken& drawn : scheduler_.ApplyStep(result_)) {
      if (admission_->Find(drawn.key)->end_step <= admission_->plan_number() + 1) ended_.push_back(drawn.key);
    }
    for (const StepsLeft& moved : scheduler_.moved_ends()) {
      admission_->SetEndStep(moved.key, admission_->plan_number() + 1 + moved.steps);
    }
    for (const RequestKey key : ended_) {
      scheduler_.Remove(key);
      admission_->Finish(key, now_, 0);
      --running_;
    }
    now_ += std::chrono::milliseconds(20);
    return took;
  }

  // The verdict on one arrival.
  std::chrono::nanoseconds Decide() {
    const auto begin = std::chrono::steady_clock::now();
    AdmissionRequest request;
    request.key = next_key_;
    request.prompt_tokens = 250;
    request.max_output_tokens = 200;
    request.arrival = now_;
    request.deadline = now_ + std::chrono::seconds(30);
    request.needed_time = std::chrono::seconds(1);
    const bool refused = desk_.Enter({0, 0, 1, false, 250}).has_value();
    benchmark::DoNotOptimize(refused);
    if (!refused) {
      auto verdict = admission_->Judge(request, now_);
      benchmark::DoNotOptimize(verdict);
      desk_.Leave(0);
    }
    return std::chrono::steady_clock::now() - begin;
  }

  std::int64_t running() const { return running_; }

 private:
  static Policy MakePolicy() {
    Policy policy;
    policy.classes.resize(2);
    policy.classes[0].name = "interactive";
    policy.classes[0].priority = 9;
    policy.classes[0].kv_guarantee_blocks = 100;
    policy.classes[0].slot_guarantee = 0;
    policy.classes[1].name = "batch";
    policy.classes[1].kv_borrowing_limit_blocks = 40000;
    policy.classes[1].preemptible = true;
    for (ClassPolicy& c : policy.classes) {
      c.max_queued_requests = 2 * kQueued;
      c.max_wait = std::chrono::hours(10);
    }
    policy.tenants.resize(8);
    policy.max_running_sequences = kRunning;
    policy.max_batched_tokens = 2048;
    return policy;
  }

  BlockPool pool_;
  EntryDesk desk_;
  Scheduler scheduler_;
  std::unique_ptr<Admission> admission_;
  SamplingSpec sampling_;
  StepResult result_;
  std::vector<RequestKey> ended_;
  TimePoint now_{};
  RequestKey next_key_ = 0;
  std::int64_t running_ = 0;
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

void PlanStep(benchmark::State& state) {
  Crowd crowd(state.range(0));
  std::vector<std::chrono::nanoseconds> times;
  for (auto _ : state) times.push_back(crowd.Step());
  state.counters["running"] = static_cast<double>(crowd.running());
  Report(state, std::move(times));
}
BENCHMARK(PlanStep)->Arg(0)->Arg(1000)->Arg(kQueued)->Iterations(200)->Unit(benchmark::kMicrosecond);

void Decide(benchmark::State& state) {
  Crowd crowd(state.range(0));
  std::vector<std::chrono::nanoseconds> times;
  for (auto _ : state) times.push_back(crowd.Decide());
  Report(state, std::move(times));
}
BENCHMARK(Decide)->Arg(1000)->Arg(kQueued)->Iterations(20000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace berth

BENCHMARK_MAIN();
