#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "fakes/core_fixture.h"
#include "scheduler/scheduler.h"

namespace berth {

// The scheduler without admission: each test says who starts and who is preempted, and when.
class DrivenScheduler : public testing::Test {
 protected:
  // A copy costs `copy_seconds` a block, a token 1 ms.
  void Use(const KvPoolShape& shape, std::int64_t batched_tokens = 64, double copy_seconds = 0.0,
           std::int32_t max_steps_in_flight = 1) {
    policy = test::TwoClasses(batched_tokens);
    pool = std::make_unique<BlockPool>(shape, 2);
    scheduler = std::make_unique<Scheduler>(
        pool.get(), policy, StepCostModel({0.001, 0.001, 0.001, 0, 0, copy_seconds}), max_steps_in_flight);
    backend = std::make_unique<test::MemoryBackend>(shape, 1 << 20, max_steps_in_flight);
    backend->set_references([this](BlockId block) { return pool->references(block); });
    backend->set_step_time([](const StepPlan&) { return Duration(0); });  // the cost model learns nothing
  }
  void TearDown() override {
    for (const auto& [key, request] : requests) scheduler->Remove(key);
    EXPECT_EQ(backend->fault(), "");
    EXPECT_EQ(pool->live_blocks() + pool->unspent_blocks(), 0);
    EXPECT_EQ(pool->host().used(), 0);
  }

  struct Running {
    test::LoopRequest request;
    SamplingSpec sampling;
    std::vector<std::vector<TokenId>> output;
    std::int64_t live = 1;
  };

  void Add(
      RequestKey key, const test::LoopRequest& request,
      const std::function<void(ScheduledRequest*)>& change = [](ScheduledRequest*) {}) {
    Running& r = requests[key];
    r.request = request;
    r.sampling.n = request.n;
    r.sampling.seed = request.seed;
    r.output.resize(static_cast<std::size_t>(request.n));
    r.live = request.n;
    ScheduledRequest scheduled;
    scheduled.key = key;
    scheduled.prompt = request.prompt;
    scheduled.max_output_tokens = request.max_output_tokens;
    scheduled.sampling = &r.sampling;
    scheduled.prompt_logprobs = request.prompt_logprobs;
    change(&scheduled);
    scheduler->Add(std::move(scheduled));
  }
  void Commit(const std::vector<RequestKey>& preempt, const std::vector<RequestKey>& start) {
    AdmissionPlan plan;
    plan.preempt = preempt;
    for (const RequestKey key : start) plan.admit.push_back({key, BlocksFor(requests[key]), false});
    scheduler->Commit(plan);
  }
  // Plans and runs a step. False where it failed.
  bool Step() {
    step = scheduler->PlanStep(test::At(0));
    if (on_plan) on_plan(step);
    if (step.empty()) return true;
    EXPECT_TRUE(backend->Submit(step).ok());
    if (drafts) scheduler->DraftStep();
    StepResult& result = scratch;
    if (!backend->Await(&result).ok()) {
      const std::span<const RequestKey> touched = scheduler->DropStep();
      dropped.assign(touched.begin(), touched.end());
      return false;
    }
    for (const DrawnToken& drawn : scheduler->ApplyStep(result)) Take(drawn);
    return true;
  }
  // Plans a step and submits it; Collect takes the result of the oldest.
  const StepPlan& Submit() {
    const StepPlan& planned = scheduler->PlanStep(test::At(0));
    if (!planned.empty()) {
      EXPECT_TRUE(backend->Submit(planned).ok());
    }
    return planned;
  }
  bool Collect() {
    if (!backend->Await(&scratch).ok()) {
      const std::span<const RequestKey> touched = scheduler->DropStep();
      dropped.assign(touched.begin(), touched.end());
      return false;
    }
    for (const DrawnToken& drawn : scheduler->ApplyStep(scratch)) Take(drawn);
    return true;
  }
  // Each step is submitted while the one before is in flight.
  void FinishAhead(RequestKey key) {
    const Running& r = requests[key];
    while (r.live > 0) {
      const bool submitted = !Submit().empty();
      if (scheduler->steps_in_flight() == 2 || !submitted) Collect();
    }
    while (scheduler->steps_in_flight() > 0) Collect();
    EXPECT_EQ(r.output, test::Alone(r.request));
  }
  void Take(const DrawnToken& drawn) {
    Running& r = requests[drawn.key];
    auto& output = r.output[static_cast<std::size_t>(drawn.choice)];
    output.push_back(drawn.token);
    if (std::ssize(output) == r.request.max_output_tokens) End(drawn.key, drawn.choice);
  }
  std::int64_t BlocksFor(const Running& r) const {
    const std::int64_t width = pool->shape().block_tokens;
    const std::int64_t prompt = std::ssize(r.request.prompt);
    return prompt / width + r.live * (CeilDiv(prompt + r.request.max_output_tokens - 1, width) - prompt / width);
  }
  // Returns the blocks that the choice had.
  std::vector<BlockId> End(RequestKey key, std::int32_t choice) {
    std::vector<BlockId> released;
    Running& r = requests[key];
    if (--r.live == 0) {
      scheduler->Remove(key);
    } else {
      scheduler->EndChoice(key, choice, BlocksFor(r), &released);
    }
    return released;
  }
  // Runs the request to its end: what it put out is right.
  void Finish(RequestKey key) {
    const Running& r = requests[key];
    while (r.live > 0) Step();
    EXPECT_EQ(r.output, test::Alone(r.request));
  }
  // Whatever is free is overwritten, so that nothing is left in the prefix cache.
  void OverwriteFreeBlocks() {
    const RequestKey key = next_filler++;
    Add(key, test::Ask(0, test::Prompt(pool->available_blocks() * pool->shape().block_tokens, 77000), 1));
    Commit({}, {key});
    Finish(key);
  }

  Policy policy;
  std::unique_ptr<BlockPool> pool;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<test::MemoryBackend> backend;
  std::map<RequestKey, Running> requests;
  bool drafts = false;
  std::function<void(const StepPlan&)> on_plan;
  StepPlan step;
  StepResult scratch;
  std::vector<RequestKey> dropped;
  RequestKey next_filler = 1000;
};

}  // namespace berth
