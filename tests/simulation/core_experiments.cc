// Experiments in virtual time: does reserving per class keep what it promises, and what does it cost? Prints the tables
// of docs/experiments.md. The core is the server's; the backend only says how long a step takes.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "fakes/core_loop.h"
#include "fakes/cost_backend.h"

namespace berth {
namespace {

using test::CoreLoop;
using test::CostBackend;
using test::LoopRequest;
using test::Outcome;

TimePoint At(double seconds) {
  return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
}
double SecondsOf(TimePoint t) { return ToSeconds(t.time_since_epoch()); }

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  std::int64_t Between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  double Unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }

 private:
  std::mt19937_64 engine_;
};

std::vector<TokenId> FreshPrompt(std::int64_t tokens, Draw* draw) {
  std::vector<TokenId> prompt(static_cast<std::size_t>(tokens));
  for (TokenId& t : prompt) t = static_cast<TokenId>(draw->Between(0, 30000));
  return prompt;
}

ClassPolicy Class(const std::string& name, std::int32_t priority, std::int64_t guarantee, std::int64_t borrowing,
                  bool preemptible, std::int64_t slots) {
  ClassPolicy c;
  c.name = name;
  c.priority = priority;
  c.kv_guarantee_blocks = guarantee;
  c.kv_borrowing_limit_blocks = borrowing;
  c.preemptible = preemptible;
  c.slot_guarantee = slots;
  c.max_queued_requests = 100000;
  c.max_wait = std::chrono::hours(1);
  return c;
}

int failures = 0;

// What must come out.
void Require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "FAILED: %s\n", promise);
  ++failures;
}

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0.0;
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

constexpr double kInteractivePerSecond = 1.75;

struct FloodResult {
  std::vector<double> waits;  // of interactive requests, seconds
  std::int64_t interactive = 0;
  std::int64_t refused = 0;
  std::int64_t batch_tokens = 0;
  std::int64_t computed = 0;
  std::int64_t recomputed = 0;
  std::int64_t preemptions = 0;
  double longest_step = 0.0;
  double blocks_used = 0.0;  // by interactive requests, on average
};

// Ten minutes of batch without end; interactive requests arrive at random, at a rate that keeps 60 % of the guarantee
// reserved on average, and never so that they reserve more than all of it. `batch` and `interactive` are classes of the
// policy; interactive < 0 leaves it out.
FloodResult Flood(const Policy& policy, std::int32_t blocks, ClassId batch, ClassId interactive,
                  std::int64_t guarantee) {
  const KvPoolShape pool{blocks, 16};
  CostBackend backend(pool);
  CoreLoop loop(pool, policy, &backend);
  Draw draw(11);
  FloodResult result;
  std::map<RequestKey, std::int64_t> demand;  // of live interactive requests
  std::map<RequestKey, std::int64_t> output_of;
  std::int64_t reserved = 0;
  double now = 0.0;
  double last_step = 0.02;
  double next_arrival = 0.0;
  while (now < 600.0) {
    while (loop.admission().waiting(batch) < 64) {
      LoopRequest r;
      r.service_class = batch;
      r.tenant = static_cast<TenantId>(draw.Between(1, 8));
      r.prompt = FreshPrompt(draw.Between(200, 600), &draw);
      r.max_output_tokens = draw.Between(200, 600);
      output_of[loop.Arrive(r, At(now))] = r.max_output_tokens;
    }
    while (interactive >= 0 && next_arrival <= now) {
      LoopRequest r;
      r.service_class = interactive;
      const std::int64_t prompt = draw.Between(50, 1000);
      r.max_output_tokens = draw.Between(50, 400);
      const std::int64_t worst = CeilDiv(prompt + r.max_output_tokens - 1, 16);
      const double arrival = next_arrival;
      next_arrival += -std::log(1.0 - draw.Unit()) / kInteractivePerSecond;
      if (reserved + worst > guarantee) continue;
      r.prompt = FreshPrompt(prompt, &draw);
      const RequestKey key = loop.Arrive(r, At(arrival));
      demand[key] = worst;
      reserved += worst;
      ++result.interactive;
    }
    loop.Tick(At(now));
    last_step = ToSeconds(loop.last_busy());
    if (last_step <= 0.0) last_step = 0.02;
    result.longest_step = std::max(result.longest_step, last_step);
    result.blocks_used += static_cast<double>(reserved) * last_step / 600.0;
    now += last_step;
    for (const auto& [key, outcome] : loop.ended()) {
      result.preemptions += outcome.preemptions;
      if (const auto found = demand.find(key); found != demand.end()) {
        reserved -= found->second;
        demand.erase(found);
        if (outcome.reason.has_value()) {
          ++result.refused;
        } else {
          result.waits.push_back(ToSeconds(*outcome.first_start - outcome.arrival));
        }
      } else if (!outcome.reason.has_value()) {
        result.batch_tokens += output_of[key];
      }
    }
    loop.mutable_ended()->clear();
  }
  // Whoever still waits has waited so long.
  for (const auto& view : loop.Views()) {
    const RequestState* r = loop.admission().Find(view.key);
    if (demand.contains(view.key) && !view.running) result.waits.push_back(now - SecondsOf(r->request.arrival));
  }
  result.computed = loop.scheduler().computed_tokens();
  result.recomputed = loop.scheduler().recomputed_tokens();
  return result;
}

void PrintFlood(const char* name, const FloodResult& r) {
  std::printf("| %s | %lld | %lld | %.3f | %.3f | %.3f | %.1f | %lld |\n", name, static_cast<long long>(r.interactive),
              static_cast<long long>(r.refused), Quantile(r.waits, 0.5), Quantile(r.waits, 0.99), r.longest_step,
              static_cast<double>(r.batch_tokens) / 600.0, static_cast<long long>(r.preemptions));
}

void FloodExperiment() {
  Policy reserved;
  reserved.classes = {Class("interactive", 100, 600, 0, false, 96), Class("batch", 10, 200, 800, true, 32)};
  reserved.tenants.resize(9);
  reserved.max_running_sequences = 160;
  reserved.max_batched_tokens = 512;
  const FloodResult with = Flood(reserved, 1000, 1, 0, 600);
  // The batch alone in what the interactive class left on average.
  Policy alone = reserved;
  alone.classes[0].kv_guarantee_blocks = 0;
  const auto left = static_cast<std::int32_t>(1000.0 - with.blocks_used);
  const FloodResult batch_alone = Flood(alone, left, 1, -1, 0);
  Policy one_pool = reserved;
  one_pool.classes = {Class("everyone", 1, 0, 1000, false, 0)};
  const FloodResult without = Flood(one_pool, 1000, 0, 0, 600);
  std::printf("## Batch floods a pool of 1,000 blocks for ten minutes\n\n");
  std::printf(
      "| | interactive requests | refused | wait p50 s | wait p99 s | longest step s | batch tokens/s | preemptions "
      "|\n");
  std::printf("|---|---|---|---|---|---|---|---|\n");
  PrintFlood("600 blocks guaranteed; batch has 200 and borrows", with);
  PrintFlood("one pool, no reservation", without);
  std::printf("| batch alone in the %d blocks left | | | | | | %.1f | |\n\n", left,
              static_cast<double>(batch_alone.batch_tokens) / 600.0);
  std::printf(
      "Interactive requests reserved %.0f of 600 blocks on average. Batch kept %.1f %% of its throughput alone. ",
      with.blocks_used, 100.0 * static_cast<double>(with.batch_tokens) / static_cast<double>(batch_alone.batch_tokens));
  std::printf("Of %lld computed tokens %lld (%.1f %%) were computed again after a preemption.\n\n",
              static_cast<long long>(with.computed), static_cast<long long>(with.recomputed),
              100.0 * static_cast<double>(with.recomputed) / static_cast<double>(with.computed));
  Require(with.refused == 0, "no interactive request within the guarantee is refused");
  Require(Quantile(with.waits, 0.99) <= 2.0 * with.longest_step, "interactive p99 wait within a step and a preemption");
  Require(static_cast<double>(with.batch_tokens) >= 0.95 * static_cast<double>(batch_alone.batch_tokens),
          "batch keeps 95 % of its throughput in what is left");
  Require(Quantile(without.waits, 0.99) > 10.0 * Quantile(with.waits, 0.99), "without reservations it is far worse");
}

void FairnessExperiment() {
  Policy policy;
  policy.classes = {Class("c", 1, 1000, 0, false, 128)};
  policy.tenants.resize(2);
  policy.max_running_sequences = 128;
  policy.max_batched_tokens = 512;
  const KvPoolShape pool{1000, 16};
  CostBackend backend(pool);
  CoreLoop loop(pool, policy, &backend);
  Draw draw(5);
  double service[2] = {0.0, 0.0};
  std::int64_t complete[2] = {0, 0};
  std::map<RequestKey, TenantId> tenant_of;
  double now = 0.0;
  while (std::min(complete[0], complete[1]) < 150) {
    std::int64_t waiting[2] = {0, 0};
    for (const auto& view : loop.Views()) waiting[view.request->tenant] += view.running ? 0 : 1;
    for (TenantId t = 0; t < 2; ++t) {
      for (; waiting[t] < 40; ++waiting[t]) {
        LoopRequest r;
        r.tenant = t;
        r.prompt = FreshPrompt(t == 0 ? 50 : 1000, &draw);
        r.max_output_tokens = 50;
        tenant_of[loop.Arrive(r, At(now))] = t;
      }
    }
    loop.Tick(At(now));
    const double step = std::max(0.001, ToSeconds(loop.last_busy()));
    for (const auto& view : loop.Views()) {
      if (view.running)
        service[view.request->tenant] += step * static_cast<double>(loop.scheduler().Blocks(view.key)->reserved());
    }
    now += step;
    for (const auto& [key, outcome] : loop.ended()) ++complete[tenant_of[key]];
    loop.mutable_ended()->clear();
  }
  std::printf("## Two tenants of equal weight, both backlogged, one with prompts 20 times longer\n\n");
  std::printf("| tenant | prompt tokens | completions | block-seconds | share |\n|---|---|---|---|---|\n");
  for (int t = 0; t < 2; ++t) {
    std::printf("| %d | %d | %lld | %.0f | %.1f %% |\n", t, t == 0 ? 50 : 1000, static_cast<long long>(complete[t]),
                service[t], 100.0 * service[t] / (service[0] + service[1]));
  }
  std::printf("\n");
  Require(std::abs(service[0] / (service[0] + service[1]) - 0.5) <= 0.025, "service within 5 % of the weights");
}

struct Load {
  double arrivals_per_second = 0.0;
  double goodput = 0.0;  // tokens/s of requests that were complete before their deadline
  std::int64_t arrived = 0;
  std::int64_t met = 0;
  std::int64_t refused = 0;
};

Load Deadlines(double arrivals_per_second, bool judge) {
  Policy policy;
  policy.classes = {Class("c", 1, 1000, 0, false, 64)};
  policy.classes[0].require = DeadlineRequirement::kFullOutput;
  policy.tenants.resize(1);
  policy.max_running_sequences = 64;
  policy.max_batched_tokens = 512;
  const KvPoolShape pool{1000, 16};
  CostBackend backend(pool);
  CoreLoop loop(pool, policy, &backend);
  Draw draw(3);
  Load load;
  load.arrivals_per_second = arrivals_per_second;
  std::map<RequestKey, std::int64_t> output_of;
  double now = 0.0;
  double next = 0.0;
  while (now < 300.0) {
    for (; next <= now; next += -std::log(1.0 - draw.Unit()) / arrivals_per_second) {
      LoopRequest r;
      r.prompt = FreshPrompt(draw.Between(50, 300), &draw);
      r.max_output_tokens = draw.Between(50, 250);
      r.deadline = At(next + 15.0);
      r.judge_deadline = judge;
      output_of[loop.Arrive(r, At(next))] = r.max_output_tokens;
      ++load.arrived;
    }
    if (!loop.Tick(At(now))) {
      now = std::max(now + 0.001, next);
      continue;
    }
    now += std::max(0.001, ToSeconds(loop.last_busy()));
    for (const auto& [key, outcome] : loop.ended()) {
      if (outcome.reason.has_value()) {
        ++load.refused;
      } else {
        ++load.met;
        load.goodput += static_cast<double>(output_of[key]) / 300.0;
      }
    }
    loop.mutable_ended()->clear();
  }
  return load;
}

void OverloadExperiment() {
  std::printf("## Overload with deadlines of 15 s on the full output\n\n");
  std::printf("| load | arrivals/s | arrived | met their deadline | goodput tokens/s |\n|---|---|---|---|---|\n");
  // Capacity: the arrival rate with the highest goodput when everyone is let in.
  Load capacity;
  for (double rate = 6.0; rate <= 20.0; rate += 1.0) {
    const Load load = Deadlines(rate, false);
    if (load.goodput > capacity.goodput) capacity = load;
  }
  const auto print = [](const char* name, const Load& l) {
    std::printf("| %s | %.0f | %lld | %lld | %.0f |\n", name, l.arrivals_per_second, static_cast<long long>(l.arrived),
                static_cast<long long>(l.met), l.goodput);
  };
  const Load judged = Deadlines(3.0 * capacity.arrivals_per_second, true);
  const Load fcfs = Deadlines(3.0 * capacity.arrivals_per_second, false);
  print("at capacity", capacity);
  print("3 times capacity, deadlines judged", judged);
  print("3 times capacity, first come first served", fcfs);
  std::printf(
      "\nJudged goodput is %.0f %% of the goodput at capacity and %.1f times that of first come first served.\n",
      100.0 * judged.goodput / capacity.goodput, judged.goodput / std::max(1e-9, fcfs.goodput));
  Require(judged.goodput >= 0.9 * capacity.goodput, "goodput under overload is 90 % of that at capacity");
  Require(judged.goodput >= 2.0 * fcfs.goodput, "and twice that of first come first served");
}

}  // namespace

int RunExperiments() {
  FloodExperiment();
  FairnessExperiment();
  OverloadExperiment();
  return failures == 0 ? 0 : 1;
}

}  // namespace berth

int main() { return berth::RunExperiments(); }
