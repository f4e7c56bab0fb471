// What a step leaves behind for the bill, and what may happen while it runs.
#include <gtest/gtest.h>

#include <vector>

#include "fakes/core_fixture.h"
#include "scheduler/scheduler.h"

namespace berth {
namespace {

using test::Ask;
using test::At;
using test::Prompt;
using test::TwoClasses;

class StepAccounting : public test::CoreTest {};

TEST_F(StepAccounting, ASharedStepIsSplitByPredictedCost) {
  Use({200, 4}, TwoClasses(64));
  BlockPool pool({200, 4});
  Scheduler scheduler(&pool, TwoClasses(64), StepCostModel({0.006, 0.001, 0.002, 0.0001, 0.00001}));
  SamplingSpec sampling;
  SamplingSpec pair;
  pair.n = 2;
  const auto run = [&](RequestKey key, std::vector<TokenId> prompt, const SamplingSpec* spec) {
    ScheduledRequest request;
    request.key = key;
    request.prompt = std::move(prompt);
    request.max_output_tokens = 8;
    request.sampling = spec;
    scheduler.Add(request);
    AdmissionPlan plan;
    plan.admit.push_back({key, 10, false});
    scheduler.Commit(plan);
  };
  const auto step = [&] {
    const StepPlan& planned = scheduler.PlanStep(At(0));
    StepResult result;
    result.step = planned.step;
    result.logits.assign(planned.logit_rows.size(), {});
    scheduler.ApplyStep(result);
  };
  run(0, Prompt(6), &sampling);
  run(1, Prompt(9, 100), &pair);
  step();
  run(2, Prompt(12, 200), &sampling);
  step();
  // Rows: one decode at 7 tokens, two at 10, one chunk of 12.
  const std::vector<double> cost = {0.006 / 4 + 0.002 + 7 * 0.0001, 2 * (0.006 / 4 + 0.002 + 10 * 0.0001),
                                    0.006 / 4 + 12 * 0.001 + 144 * 0.00001};
  const double total = cost[0] + cost[1] + cost[2];
  ASSERT_EQ(scheduler.shares().size(), 3U);
  double sum = 0.0;
  for (const StepShare& share : scheduler.shares()) {
    EXPECT_NEAR(share.share, cost[static_cast<std::size_t>(share.key)] / total, 1e-9) << "request " << share.key;
    sum += share.share;
  }
  EXPECT_NEAR(sum, 1.0, 1e-12);
  for (const RequestKey key : {0, 1, 2}) scheduler.Remove(key);
}

TEST_F(StepAccounting, ARequestKnowsWhatItFoundCachedAndWhatItComputedAgain) {
  Use({64, 4}, TwoClasses());
  const RequestKey first = Arrive(Ask(1, Prompt(40), 120));
  Tick();
  EXPECT_EQ(loop->scheduler().CachedTokens(first), 0);
  const RequestKey second = Arrive(Ask(0, Prompt(21), 2));
  Tick();
  EXPECT_EQ(loop->scheduler().CachedTokens(second), 20);
  for (int i = 0; i < 5; ++i) Tick();
  EXPECT_EQ(loop->scheduler().RecomputedTokens(first), 0);
  Arrive(Ask(0, Prompt(100, 900), 40));
  Tick();
  while (loop->scheduler().Blocks(first) == nullptr) Tick();
  Tick();
  EXPECT_GT(loop->scheduler().RecomputedTokens(first), 0);
  EXPECT_EQ(loop->scheduler().RecomputedTokens(first), loop->scheduler().recomputed_tokens());
  Drain();
}

TEST_F(StepAccounting, WhatIsInNoStepComesAndGoesWhileOneIsInFlight) {
  Use({64, 4}, TwoClasses(8));
  Scheduler& scheduler = loop->scheduler();
  SamplingSpec sampling;
  const auto add = [&](RequestKey key, TokenId first_token) {
    ScheduledRequest request;
    request.key = key;
    request.prompt = Prompt(12, first_token);
    request.max_output_tokens = 4;
    request.sampling = &sampling;
    scheduler.Add(request);
  };
  for (const RequestKey key : {0, 1, 2}) add(key, static_cast<TokenId>(100 * key));
  AdmissionPlan plan;
  plan.admit = {{0, 4, false}, {1, 4, false}};
  scheduler.Commit(plan);
  const StepPlan& step = scheduler.PlanStep(At(0));
  ASSERT_EQ(step.rows.size(), 1U) << "the budget has no room for the second request";
  add(3, 500);
  scheduler.Remove(2);
  scheduler.Remove(1);
  ASSERT_TRUE(backend->Submit(step).ok());
  StepResult result;
  ASSERT_TRUE(backend->Await(&result).ok());
  scheduler.ApplyStep(result);
  EXPECT_EQ(loop->pool().unspent_blocks() + loop->pool().live_blocks(), 4);
  plan.admit = {{3, 4, false}};
  scheduler.Commit(plan);
  EXPECT_EQ(scheduler.PlanStep(At(1)).rows.size(), 2U);
  scheduler.DropStep();
  scheduler.Remove(0);
  scheduler.Remove(3);
}

}  // namespace
}  // namespace berth
