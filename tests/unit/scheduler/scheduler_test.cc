#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <vector>

#include "fakes/allocation_counter.h"
#include "fakes/core_fixture.h"

namespace berth {
namespace {

using test::Ask;
using test::At;
using test::LoopRequest;
using test::Prompt;
using test::TwoClasses;

class SchedulerTest : public test::CoreTest {};

TEST_F(SchedulerTest, OutputIsAFunctionOfTheRequestAlone) {
  Use({64, 4}, TwoClasses(16));
  for (int i = 0; i < 12; ++i) Arrive(Ask(i % 2, Prompt(3 + 5 * i, i % 3), 2 + i, 1 + i % 3, 7));
  Drain();
}

TEST_F(SchedulerTest, APrefixHitChangesNothingButTheWork) {
  Use({64, 4}, TwoClasses());
  Arrive(Ask(0, Prompt(30), 3));
  Drain();
  const std::int64_t cold = loop->scheduler().computed_tokens();
  Arrive(Ask(0, Prompt(30), 3));
  Drain();
  EXPECT_EQ(cold, 32);
  EXPECT_EQ(loop->scheduler().computed_tokens() - cold, 32 - 28);
}

TEST_F(SchedulerTest, AFullPrefixHitStillComputesTheLastToken) {
  Use({64, 4}, TwoClasses());
  Arrive(Ask(0, Prompt(32), 1));
  Drain();
  const std::int64_t cold = loop->scheduler().computed_tokens();
  Arrive(Ask(0, Prompt(32), 1));
  Drain();
  EXPECT_EQ(loop->scheduler().computed_tokens() - cold, 4);
}

TEST_F(SchedulerTest, PromptLogprobsTakeNoHits) {
  Use({64, 4}, TwoClasses());
  Arrive(Ask(0, Prompt(32), 1));
  Drain();
  LoopRequest request = Ask(0, Prompt(32), 1);
  request.prompt_logprobs = 0;
  Arrive(request);
  Tick();
  Drain();
  EXPECT_EQ(loop->scheduler().computed_tokens(), 64);
}

TEST_F(SchedulerTest, ChoicesPartWithOneCopyEachAndPromptBlocksAreHeldOnce) {
  Use({64, 4}, TwoClasses());
  const RequestKey key = Arrive(Ask(0, Prompt(10), 8, 3));
  Tick();
  EXPECT_TRUE(loop->last_step()->block_copies.empty());
  EXPECT_EQ(loop->last_step()->logit_rows.size(), 3U);
  Tick();
  EXPECT_EQ(loop->last_step()->block_copies.size(), 2U) << "n - 1 copies";
  EXPECT_EQ(loop->scheduler().Blocks(key)->held(), 2 + 3);
  Drain();
}

TEST_F(SchedulerTest, AChoiceThatEndsAtItsFirstTokenLeavesItsBlockToTheOthers) {
  Use({64, 4}, TwoClasses());
  loop->set_stop_rule(
      [](RequestKey, std::int32_t choice, const auto& output) { return choice == 0 && output.size() == 1; });
  const RequestKey key = Arrive(Ask(0, Prompt(10), 8, 3));
  while (loop->live() > 0) Tick();
  const auto expected = test::Alone(asked[key]);
  const auto& output = loop->ended().at(key).output;
  EXPECT_EQ(output[0].size(), 1U);
  EXPECT_EQ(output[1], expected[1]);
  EXPECT_EQ(output[2], expected[2]);
}

TEST_F(SchedulerTest, APreemptedRequestGoesOnWithTheSameTokens) {
  Use({64, 4}, TwoClasses());
  const RequestKey victim = Arrive(Ask(1, Prompt(40), 120, 1));
  const RequestKey group = Arrive(Ask(1, Prompt(21, 500), 12, 3));
  for (int i = 0; i < 6; ++i) Tick();
  const RequestKey claim = Arrive(Ask(0, Prompt(100, 900), 40));
  Tick();
  EXPECT_EQ(loop->admission().Find(claim)->phase, RequestState::Phase::kRunning);
  Drain();
  EXPECT_GE(loop->ended().at(victim).preemptions + loop->ended().at(group).preemptions, 1);
}

TEST_F(SchedulerTest, EveryRunningSequenceDecodesInEveryStepBesideALongPrefill) {
  Use({200, 4}, [] {
    Policy policy = TwoClasses(16);
    policy.classes[0].kv_guarantee_blocks = 100;
    return policy;
  }());
  const RequestKey decoder = Arrive(Ask(0, Prompt(4), 40));
  Tick();
  Arrive(Ask(1, Prompt(200, 300), 2));
  for (int i = 0; i < 12; ++i) {
    const std::size_t before = loop->scheduler().Blocks(decoder) == nullptr ? 0 : 1;
    ASSERT_EQ(before, 1U);
    Tick();
    EXPECT_EQ(loop->last_step()->rows[0].num_tokens, 1);
    EXPECT_EQ(loop->last_step()->token_ids.size(), 16U) << "one decode and a chunk of what is left";
  }
  Drain();
}

// A short request behind a long prefill of a lower class gets its first token at once.
TEST_F(SchedulerTest, APrefillOfHigherPriorityGoesBeforeALongOne) {
  Use({400, 4}, [] {
    Policy policy = TwoClasses(32);
    policy.classes[1].kv_borrowing_limit_blocks = 390;
    return policy;
  }());
  Arrive(Ask(1, Prompt(800), 2));
  for (int i = 0; i < 3; ++i) Tick();
  const RequestKey urgent = Arrive(Ask(0, Prompt(20, 5000), 1));
  Tick();
  EXPECT_TRUE(loop->ended().contains(urgent));
  Drain();
}

TEST_F(SchedulerTest, AMinimumShareKeepsALowerClassMoving) {
  Policy policy = TwoClasses(40);
  policy.classes[0].kv_guarantee_blocks = 100;
  policy.classes[1].prefill_min_share = 0.25;
  policy.classes[1].kv_borrowing_limit_blocks = 90;
  Use({200, 4}, policy);
  Arrive(Ask(1, Prompt(100, 3000), 1));
  Tick();
  Arrive(Ask(0, Prompt(300), 1));
  Tick();
  std::int64_t low = 0;
  for (const StepRow& row : loop->last_step()->rows) low = std::max<std::int64_t>(low, row.num_tokens == 10 ? 10 : 0);
  EXPECT_EQ(low, 10) << "a quarter of 40";
  Drain();
}

TEST_F(SchedulerTest, TheChunkKeepsTheStepWithinTheTightestInterTokenSlo) {
  Policy policy = TwoClasses(1000);
  policy.classes[0].inter_token_slo = std::chrono::milliseconds(20);
  policy.classes[1].kv_borrowing_limit_blocks = 190;
  Use({250, 4}, policy);
  // The machine: 1 ms and 0.1 ms a prefill token.
  backend->set_step_time([](const StepPlan& plan) {
    return Duration(std::chrono::microseconds(1000 + 100 * std::ssize(plan.token_ids)));
  });
  Arrive(Ask(0, Prompt(4), 120));
  for (int i = 0; i < 30; ++i) Tick();
  Arrive(Ask(1, Prompt(500, 2000), 1));
  Duration longest{};
  std::int64_t steps = 0;
  for (; steps < 60; ++steps) {
    Tick();
    if (loop->last_step()->token_ids.size() == 1) break;
    longest = std::max(longest, loop->last_busy());
  }
  EXPECT_LE(longest, std::chrono::milliseconds(21));
  EXPECT_LE(steps, 12) << "and wastes little of it";
  Drain();
}

TEST_F(SchedulerTest, APrefillProgressesEvenWhereTheSloLeavesNothing) {
  Policy policy = TwoClasses(64);
  policy.classes[0].inter_token_slo = std::chrono::microseconds(1);
  Use({64, 4}, policy);
  Arrive(Ask(0, Prompt(4), 60));
  Tick();
  const RequestKey prefill = Arrive(Ask(0, Prompt(40, 100), 1));
  for (int i = 0; i < 10; ++i) Tick();
  EXPECT_TRUE(loop->ended().contains(prefill)) << "one block a step";
  Drain();
}

TEST_F(SchedulerTest, AStepNeverHasMoreTokensThanItsBudget) {
  Policy policy = TwoClasses(16);
  Use({64, 4}, policy);
  for (int i = 0; i < 20; ++i) Arrive(Ask(i % 2, Prompt(7 + i, 100 * i), 5));
  while (loop->live() > 0) {
    Tick();
    ASSERT_TRUE(loop->last_step() == nullptr || loop->last_step()->token_ids.size() <= 16U);
  }
}

TEST_F(SchedulerTest, CancelAtEveryPointGivesBackEveryBlock) {
  for (int point = 0; point < 14; ++point) {
    Use({64, 4}, TwoClasses(8));
    const RequestKey other = Arrive(Ask(0, Prompt(5), 30));
    Tick();
    const RequestKey key = Arrive(Ask(0, Prompt(30, 200), 10, 2));
    for (int i = 0; i < point; ++i) Tick();
    loop->Cancel(key);
    Tick();
    ASSERT_TRUE(loop->ended().contains(key)) << "point " << point;
    EXPECT_EQ(loop->ended().at(key).reason, RefusalReason::kCancelledByClient);
    EXPECT_FALSE(loop->ended().contains(other)) << "the right one was cancelled";
    EXPECT_EQ(loop->pool().live_blocks() + loop->pool().unspent_blocks(), loop->scheduler().Blocks(other)->reserved());
    Drain();
    asked.clear();
    EXPECT_EQ(backend->fault(), "");
  }
}

TEST_F(SchedulerTest, ThreeHundredAbortedRequestsLeaveFullCapacity) {
  Use({64, 4}, TwoClasses(32));
  for (int i = 0; i < 300; ++i) {
    const RequestKey key = Arrive(Ask(i % 2, Prompt(20 + i % 9, i), 8, 1 + i % 2));
    for (int t = 0; t < i % 4; ++t) Tick();
    loop->Cancel(key);
  }
  Drain();
  EXPECT_EQ(loop->pool().available_blocks(), 64);
}

TEST_F(SchedulerTest, AFaultFailsTheRequestsItTouchedAndNoOther) {
  Use({64, 4}, TwoClasses(8));
  const RequestKey running = Arrive(Ask(0, Prompt(6), 10));
  Tick();
  backend->FailNextStep();
  Tick();
  const RequestKey later = Arrive(Ask(0, Prompt(6), 4));
  Drain();
  EXPECT_EQ(loop->ended().at(running).reason, RefusalReason::kBackendFault);
  EXPECT_FALSE(loop->ended().at(later).reason.has_value());
}

TEST_F(SchedulerTest, DecodingAllocatesNothing) {
  Use({256, 16}, [] {
    Policy policy = TwoClasses(64);
    policy.classes[0].kv_guarantee_blocks = 200;
    return policy;
  }());
  BlockPool pool({256, 16});
  Scheduler scheduler(&pool, TwoClasses(64));
  SamplingSpec sampling;
  AdmissionPlan plan;
  for (RequestKey key = 0; key < 8; ++key) {
    ScheduledRequest request;
    request.key = key;
    request.prompt = Prompt(5);
    request.max_output_tokens = 300;
    request.sampling = &sampling;
    scheduler.Add(request);
    plan.admit.push_back({key, 19, false});
  }
  scheduler.Commit(plan);
  StepResult result;
  result.busy = std::chrono::milliseconds(1);
  std::int64_t before = 0;
  for (int i = 0; i < 290; ++i) {
    if (i == 200) before = test::Allocations();
    const StepPlan& step = scheduler.PlanStep(At(i));
    result.step = step.step;
    result.logits.assign(step.logit_rows.size(), {});
    scheduler.ApplyStep(result);
  }
  EXPECT_EQ(test::Allocations(), before);
  for (RequestKey key = 0; key < 8; ++key) scheduler.Remove(key);
}

TEST_F(SchedulerTest, RecomputedTokensAreReportedAndBounded) {
  Use({64, 4}, TwoClasses());
  Arrive(Ask(1, Prompt(40), 120));
  for (int i = 0; i < 6; ++i) Tick();
  Arrive(Ask(0, Prompt(100, 900), 40));
  Drain();
  const std::int64_t recomputed = loop->scheduler().recomputed_tokens();
  EXPECT_GT(recomputed, 0);
  EXPECT_LE(recomputed, 40 + 6) << "what it had computed when it was preempted";
}

TEST(SchedulerMemory, AQueuedRequestTakesLessThanOneKibibyteBesideItsTokens) {
  Policy policy = TwoClasses();
  for (ClassPolicy& c : policy.classes) c.max_queued_requests = 100000;
  BlockPool pool({64, 4}, 2);
  Admission admission({64, 4}, policy);
  Scheduler scheduler(&pool, policy);
  SamplingSpec sampling;
  constexpr std::int64_t kRequests = 10000;
  constexpr std::int64_t kPromptTokens = 30;
  const std::int64_t before = test::AllocatedBytes();
  for (RequestKey key = 0; key < kRequests; ++key) {
    AdmissionRequest request;
    request.key = key;
    request.prompt_tokens = kPromptTokens;
    request.max_output_tokens = 10;
    request.deadline = At(1000000 + key);
    ASSERT_FALSE(admission.Submit(request, At(0)).has_value());
    ScheduledRequest scheduled;
    scheduled.key = key;
    scheduled.prompt = Prompt(kPromptTokens);
    scheduled.max_output_tokens = 10;
    scheduled.sampling = &sampling;
    scheduler.Add(std::move(scheduled));
  }
  const std::int64_t tokens = kPromptTokens * static_cast<std::int64_t>(sizeof(TokenId));
  EXPECT_LT((test::AllocatedBytes() - before) / kRequests - tokens, 1024);
}

TEST_F(SchedulerTest, APrefillThatCannotMeetItsDeadlineEvenAloneIsEnded) {
  Use({200, 4}, [] {
    Policy policy = TwoClasses(16);
    policy.classes[0].kv_guarantee_blocks = 150;
    return policy;
  }());
  backend->set_step_time([](const StepPlan&) { return Duration(std::chrono::milliseconds(50)); });
  LoopRequest request = Ask(0, Prompt(400), 4);
  request.judge_deadline = true;
  request.deadline = At(400);
  const RequestKey key = Arrive(request);
  while (loop->live() > 0) {
    loop->Tick(At(now));
    now += 50;
  }
  EXPECT_EQ(loop->ended().at(key).reason, RefusalReason::kDeadlineInfeasible);
  EXPECT_LT(loop->ended().at(key).end, At(400));
}

}  // namespace
}  // namespace berth
