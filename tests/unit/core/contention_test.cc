// Who goes first when not everyone can: admission, scheduler and block pool together.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "fakes/core_fixture.h"

namespace berth {
namespace {

using test::Ask;
using test::At;
using test::Class;
using test::Prompt;
using test::TwoClasses;

class Contention : public test::CoreTest {
 protected:
  bool Running(RequestKey key) { return loop->scheduler().Blocks(key) != nullptr; }
};

TEST_F(Contention, AClaimStartsInTheNextPlanThoughBorrowersHoldEverySlot) {
  Policy policy = TwoClasses();
  policy.max_running_sequences = 4;
  policy.classes[0].slot_guarantee = 2;
  policy.classes[1].slot_guarantee = 0;
  Use({200, 4}, policy);
  for (int i = 0; i < 4; ++i) Arrive(Ask(1, Prompt(4, 100 * i), 30));
  Tick();
  EXPECT_GT(loop->pool().available_blocks(), 100) << "only slots are short";
  const RequestKey claim = Arrive(Ask(0, Prompt(8, 9000), 3));
  Tick();
  EXPECT_TRUE(Running(claim));
  EXPECT_EQ(loop->admission().Find(claim)->started_plan, loop->admission().plan_number());
  Drain();
}

TEST_F(Contention, AFullPoolIsReclaimedAsAFullSlotTableIs) {
  Use({64, 4}, TwoClasses());
  for (int i = 0; i < 4; ++i) Arrive(Ask(1, Prompt(32, 100 * i), 33));  // 16 blocks each
  Tick();
  EXPECT_EQ(loop->pool().available_blocks(), 0);
  const RequestKey claim = Arrive(Ask(0, Prompt(60, 9000), 3));
  Tick();
  EXPECT_TRUE(Running(claim));
  Drain();
}

TEST_F(Contention, RemovingAVictimSkipsNoOtherRunningRequest) {
  // Whichever place in the list of running requests the victim has.
  for (int victim = 0; victim < 6; ++victim) {
    Use({66, 4}, [] {
      Policy policy = TwoClasses();
      policy.classes[0].kv_guarantee_blocks = 6;
      policy.classes[1].kv_borrowing_limit_blocks = 60;
      return policy;
    }());
    asked.clear();
    std::vector<RequestKey> borrowers;
    for (int i = 0; i < 6; ++i) {
      // The victim has the least to compute again for what it frees: 11 blocks each.
      const std::int64_t prompt = i == victim ? 4 : 12;
      borrowers.push_back(Arrive(Ask(1, Prompt(prompt, 100 * i), 45 - prompt)));
    }
    Tick();
    Tick();
    const RequestKey claim = Arrive(Ask(0, Prompt(4, 9000), 12));
    Tick();
    EXPECT_TRUE(Running(claim));
    EXPECT_FALSE(Running(borrowers[static_cast<std::size_t>(victim)]));
    std::set<SequenceId> sequences;
    int decoding = 0;
    for (const StepRow& row : loop->last_step()->rows) {
      EXPECT_TRUE(sequences.insert(row.sequence).second);
      decoding += row.num_tokens == 1 ? 1 : 0;
    }
    EXPECT_EQ(decoding, 5) << "every other one decodes in that very step";
    EXPECT_EQ(sequences.size(), 6U);
    Drain();
  }
}

TEST_F(Contention, ABurstOfThreeHundredExceedsNoBudget) {
  Policy policy = TwoClasses(32);
  policy.classes[1].max_queued_requests = 50;
  Use({64, 4}, policy);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    const RequestKey key = Arrive(Ask(1, Prompt(5 + i % 7, 100 * i), 4));
    if (loop->ended().contains(key)) {
      EXPECT_EQ(loop->ended().at(key).reason, RefusalReason::kQueueFull);
      ++refused;
    }
  }
  EXPECT_EQ(refused, 250);
  while (loop->live() > 0) {
    Tick();
    EXPECT_LE(loop->admission().ledger().pool_slots(), 16);
    EXPECT_LE(loop->admission().ledger().pool_used(), 64);
    EXPECT_GE(loop->pool().available_blocks(), 0);
    ASSERT_TRUE(loop->last_step() == nullptr || loop->last_step()->token_ids.size() <= 32U);
  }
}

TEST_F(Contention, AShortRequestBehindAPrefillOfSixHundredThousandTokensGetsItsFirstTokenWithinOneChunk) {
  constexpr Duration kSlo = std::chrono::milliseconds(20);
  Policy policy = TwoClasses(2048);
  policy.classes[0].inter_token_slo = kSlo;
  policy.classes[0].kv_guarantee_blocks = 400;
  policy.classes[1].kv_borrowing_limit_blocks = 39000;
  Use({40000, 16}, policy);
  backend->set_step_time(
      [](const StepPlan& step) { return Duration(std::chrono::microseconds(1000 + 5 * std::ssize(step.token_ids))); });
  Arrive(Ask(1, Prompt(600000), 2));
  const RequestKey decoder = Arrive(Ask(0, Prompt(8), 200));
  for (int i = 0; i < 40; ++i) Tick();
  EXPECT_FALSE(loop->ended().contains(decoder));
  const RequestKey brief = Arrive(Ask(0, Prompt(100, 7), 1));
  const TimePoint arrival = At(now);
  Tick();
  ASSERT_TRUE(loop->ended().contains(brief)) << "its first token is there after one step";
  EXPECT_LE(*loop->ended().at(brief).first_token - arrival, kSlo);
  for (const auto& view : loop->Views()) loop->Cancel(view.key);
  Tick();
  EXPECT_EQ(loop->live(), 0);
}

TEST_F(Contention, TheTimeOfTheFirstTokenStaysWhatItWasAcrossAPreemption) {
  Use({64, 4}, TwoClasses());
  const RequestKey victim = Arrive(Ask(1, Prompt(40), 120));
  Tick();
  for (int i = 0; i < 5; ++i) Tick();
  Arrive(Ask(0, Prompt(100, 900), 40));
  Drain();
  const test::Outcome& outcome = loop->ended().at(victim);
  EXPECT_GE(outcome.preemptions, 1);
  EXPECT_EQ(*outcome.first_token, At(1)) << "the end of the first step";
  EXPECT_EQ(*outcome.first_start, At(0));
  EXPECT_GE(outcome.end - *outcome.first_token, std::chrono::milliseconds(119 + 40)) << "the pause is in its time";
  EXPECT_EQ(outcome.output[0].size(), 120U) << "no token is lost or repeated";
}

// A tenant that may not start now stands in nobody else's way.
TEST_F(Contention, ARequestThatWaitsForItsQuotaBlocksNoOther) {
  Policy policy = TwoClasses();
  policy.tenants.resize(2);
  policy.tenants[0].max_kv_blocks = 5;
  Use({64, 4}, policy);
  const RequestKey first = Arrive(Ask(0, Prompt(12), 9));
  const RequestKey waits = Arrive(Ask(0, Prompt(12, 100), 9));
  test::LoopRequest request = Ask(0, Prompt(12, 200), 9);
  request.tenant = 1;
  const RequestKey other = Arrive(request);
  Tick();
  EXPECT_TRUE(Running(first) && Running(other));
  EXPECT_FALSE(Running(waits));
  Drain();
}

}  // namespace
}  // namespace berth
