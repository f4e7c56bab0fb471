// What fits, what never fits, and what a full pool does: admission, scheduler and block pool together.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "admission/demand.h"
#include "fakes/core_fixture.h"

namespace berth {
namespace {

using test::Ask;
using test::At;
using test::Class;
using test::Prompt;

class Capacity : public test::CoreTest {
 protected:
  static Policy OneClass(std::int64_t blocks, std::int64_t batched_tokens = 64) {
    Policy policy;
    policy.classes = {Class("only", blocks, 0, false, 1, 16)};
    policy.tenants.resize(1);
    policy.max_running_sequences = 16;
    policy.max_batched_tokens = batched_tokens;
    return policy;
  }
  // A class that is sure of `guarantee` blocks, and borrowers of everything.
  static Policy ClaimsAndBorrowers(std::int64_t guarantee, std::int64_t pool) {
    Policy policy = OneClass(guarantee);
    policy.classes[0].slot_guarantee = 8;
    policy.classes.push_back(Class("borrows", pool - guarantee, guarantee, true, 0, 8));
    return policy;
  }

  bool Running(RequestKey key) { return loop->scheduler().Blocks(key) != nullptr; }
  std::optional<RefusalReason> ReasonOf(RequestKey key) { return loop->ended().at(key).reason; }
};

TEST_F(Capacity, APromptLongerThanThePoolIsRefusedForGoodAndTheNextRequestIsServed) {
  Use({8, 4}, OneClass(8));
  AdmissionRequest request;
  request.prompt_tokens = 33;
  const auto refusal = loop->admission().Judge(request, At(0));
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->reason, RefusalReason::kRequestTooLarge);
  EXPECT_EQ(refusal->limit_name, "kv_blocks");
  EXPECT_EQ(refusal->limit, 8);
  EXPECT_EQ(refusal->asked, 9);
  EXPECT_FALSE(refusal->retry_after.has_value()) << "coming back cannot help";
  EXPECT_EQ(ReasonOf(Arrive(Ask(0, Prompt(33), 1))), RefusalReason::kRequestTooLarge);
  const RequestKey next = Arrive(Ask(0, Prompt(20), 4));
  Drain();
  EXPECT_FALSE(ReasonOf(next).has_value());
}

TEST_F(Capacity, APromptThatFitsWithAnOutputThatDoesNotIsRefusedAtOnce) {
  Use({8, 4}, OneClass(8));
  EXPECT_EQ(ReasonOf(Arrive(Ask(0, Prompt(20), 14))), RefusalReason::kRequestTooLarge) << "33 tokens to store";
  const RequestKey largest = Arrive(Ask(0, Prompt(20), 13));
  Drain();
  EXPECT_FALSE(ReasonOf(largest).has_value());
}

// The other class's guarantee is never lent for good to a class that cannot be preempted.
TEST_F(Capacity, InATenBlockPoolWhatCanNeverStartIsRefusedAtOnceAndNotQueued) {
  Policy policy = OneClass(6);
  policy.classes.push_back(Class("stays", 4, 6, false, 0, 0));
  Use({10, 4}, policy);
  EXPECT_EQ(ReasonOf(Arrive(Ask(1, Prompt(17), 1))), RefusalReason::kRequestTooLarge) << "5 blocks of 4";
  policy.classes[1].preemptible = true;
  loop->SetPolicy(policy, At(now));
  const RequestKey borrower = Arrive(Ask(1, Prompt(17), 1));
  Drain();
  EXPECT_FALSE(ReasonOf(borrower).has_value()) << "who may be preempted may borrow it";
}

TEST_F(Capacity, TwoRequestsThatCouldBothGrowPastThePoolNeverRunTogether) {
  Use({8, 4}, OneClass(8));
  const RequestKey first = Arrive(Ask(0, Prompt(15), 6));  // 4 blocks now, 5 at the end
  const RequestKey second = Arrive(Ask(0, Prompt(15, 100), 6));
  while (loop->live() > 0) {
    Tick();
    int running = 0;
    for (const auto& view : loop->Views()) running += view.running ? 1 : 0;
    EXPECT_LE(running, 1);
  }
  for (const RequestKey key : {first, second}) {
    EXPECT_FALSE(ReasonOf(key).has_value());
    EXPECT_EQ(loop->ended().at(key).preemptions, 0);
  }
}

TEST_F(Capacity, FourLongRequestsKeepTheirSpeedWhenAFifthArrives) {
  Use({100, 4}, OneClass(100, 400));
  std::vector<RequestKey> four;
  for (int i = 0; i < 4; ++i) four.push_back(Arrive(Ask(0, Prompt(80, 1000 * i), 9)));  // 22 blocks each
  Tick();
  const RequestKey fifth = Arrive(Ask(0, Prompt(80, 9000), 9));
  for (int i = 0; i < 7; ++i) {
    Tick();
    EXPECT_FALSE(Running(fifth));
    ASSERT_EQ(loop->last_step()->rows.size(), 4U);
    for (const StepRow& row : loop->last_step()->rows) EXPECT_EQ(row.num_tokens, 1);
  }
  Drain();
  for (const RequestKey key : four) {
    EXPECT_EQ(loop->ended().at(key).preemptions, 0);
    EXPECT_EQ(loop->ended().at(key).end, At(9)) << "nine tokens in nine steps";
  }
}

TEST_F(Capacity, APreemptedLongRequestStartsAgainOnlyWhenItsWholeContextFits) {
  Use({20, 4}, ClaimsAndBorrowers(12, 20));
  const RequestKey large = Arrive(Ask(1, Prompt(40), 37));  // 19 blocks
  for (int i = 0; i < 5; ++i) Tick();
  const RequestKey claim = Arrive(Ask(0, Prompt(17, 500), 2));  // 5 blocks
  Tick();
  EXPECT_TRUE(Running(claim));
  EXPECT_FALSE(Running(large)) << "what it holds now would fit beside the claim, what it may come to hold would not";
  Tick();
  ASSERT_TRUE(loop->ended().contains(claim));
  Tick();
  ASSERT_TRUE(Running(large));
  EXPECT_EQ(loop->scheduler().Blocks(large)->reserved(), 19);
  Drain();
}

TEST_F(Capacity, InAnOversubscribedPoolRecomputedTokensAreReportedAndBounded) {
  constexpr std::int64_t kMaxPreemptions = 2;
  Policy policy = ClaimsAndBorrowers(32, 64);
  policy.classes[1].max_preemptions = kMaxPreemptions;
  Use({64, 4}, policy);
  std::int64_t useful = 0;
  const auto arrive = [&](ClassId c, std::int64_t prompt, std::int64_t output, TokenId first) {
    if (!loop->ended().contains(Arrive(Ask(c, Prompt(prompt, first), output)))) useful += prompt + output - 1;
  };
  for (int i = 0; i < 300; ++i) {
    if (i % 5 == 0) arrive(1, 30, 40, 100 * i);
    if (i % 40 < 10) arrive(0, 20, 12, 50000 + 100 * i);
    Tick();
  }
  Drain();
  EXPECT_GT(loop->scheduler().recomputed_tokens(), 0);
  EXPECT_LE(loop->scheduler().recomputed_tokens(), kMaxPreemptions * useful);
  EXPECT_LE(loop->scheduler().computed_tokens(), useful + loop->scheduler().recomputed_tokens());
}

TEST_F(Capacity, PreemptionCountsBlocksAndNotTokens) {
  Use({10, 16}, ClaimsAndBorrowers(4, 10));
  std::vector<RequestKey> borrowers;
  for (int i = 0; i < 5; ++i) borrowers.push_back(Arrive(Ask(1, Prompt(16, 1000 * i), 10)));  // 2 blocks each
  Tick();
  Tick();
  const RequestKey claim = Arrive(Ask(0, Prompt(49, 9000), 2));  // 4 blocks
  Tick();
  EXPECT_TRUE(Running(claim));
  EXPECT_EQ(std::ranges::count_if(borrowers, [&](RequestKey key) { return Running(key); }), 3)
      << "two victims give four blocks, though they hold 36 tokens and the claim needs room for 50";
  Drain();
}

TEST_F(Capacity, TheLastRunningRequestMayFillThePoolToItsLastBlock) {
  Use({8, 4}, OneClass(8));
  const RequestKey largest = Arrive(Ask(0, Prompt(5), 28));  // 32 tokens
  std::int64_t most = 0;
  while (loop->live() > 0) {
    Tick();
    most = std::max(most, loop->pool().live_blocks());
  }
  EXPECT_GE(most, 7);
  EXPECT_FALSE(ReasonOf(largest).has_value());
  EXPECT_EQ(loop->ended().at(largest).output[0].size(), 28U);
  const RequestKey next = Arrive(Ask(0, Prompt(5), 2));
  Drain();
  EXPECT_FALSE(ReasonOf(next).has_value());
}

TEST_F(Capacity, APoolThatFillsDuringAChunkedPrefillStopsNothing) {
  Use({20, 4}, OneClass(20, 16));
  const RequestKey chunked = Arrive(Ask(0, Prompt(48), 2));  // 13 blocks, three steps and more
  Tick();
  std::vector<RequestKey> others;
  for (int i = 0; i < 6; ++i) others.push_back(Arrive(Ask(0, Prompt(6, 1000 + 100 * i), 6)));  // 3 blocks each
  Tick();
  EXPECT_LT(loop->pool().available_blocks(), 3) << "everything is promised while the prompt is in the middle";
  Drain();
  others.push_back(chunked);
  for (const RequestKey key : others) {
    EXPECT_FALSE(ReasonOf(key).has_value());
    EXPECT_EQ(loop->ended().at(key).preemptions, 0);
  }
}

TEST_F(Capacity, APromptLongerThanAStepIsComputedInChunks) {
  Use({64, 4}, OneClass(64, 16));
  const RequestKey key = Arrive(Ask(0, Prompt(100), 1));
  int steps = 0;
  while (loop->live() > 0) {
    Tick();
    ++steps;
    ASSERT_LE(loop->last_step()->token_ids.size(), 16U);
  }
  EXPECT_EQ(steps, 7);
  EXPECT_FALSE(ReasonOf(key).has_value());
}

TEST_F(Capacity, AFinishedRequestIsNotChargedFromTheStepOnInWhichItFinishes) {
  Use({8, 4}, OneClass(8));
  const RequestKey first = Arrive(Ask(0, Prompt(20), 3));
  const RequestKey second = Arrive(Ask(0, Prompt(20, 100), 3));
  while (!loop->ended().contains(first)) Tick();
  EXPECT_EQ(loop->admission().ledger().used(0), 0);
  EXPECT_EQ(loop->admission().ledger().slots_used(0), 0);
  EXPECT_EQ(loop->pool().available_blocks(), 8);
  Tick();
  EXPECT_TRUE(Running(second)) << "in the very next plan";
  Drain();
}

TEST_F(Capacity, AfterALongRunIdleCachedBlocksAreFreeForAPoolSizedRequest) {
  Use({32, 4}, OneClass(32));
  for (int i = 0; i < 200; ++i) {
    Arrive(Ask(0, Prompt(10 + i % 20, 100 * i), 1 + i % 5));
    Tick();
  }
  Drain();
  EXPECT_GT(loop->pool().cached_blocks(), 24) << "the cache has filled the pool";
  const RequestKey largest = Arrive(Ask(0, Prompt(120, 90000), 9));
  Tick();
  EXPECT_TRUE(Running(largest));
  Drain();
}

TEST_F(Capacity, ABlockThatIsHeldIsNeverFreeUnderEvictionAndPreemption) {
  Use({24, 4}, ClaimsAndBorrowers(12, 24));
  for (int i = 0; i < 400; ++i) {
    // Four families of prompts, so that prefixes are shared, evicted and found again.
    if (i % 3 == 0) Arrive(Ask(1, Prompt(12 + i % 9, 1000 * (i % 4)), 8, 1 + i % 2));
    if (i % 20 < 6) Arrive(Ask(0, Prompt(16, 1000 * (i % 4)), 6));
    Tick();
    loop->pool().CheckBook();
    for (const auto& view : loop->Views()) {
      if (!view.running) continue;
      for (const BlockId block : loop->scheduler().Blocks(view.key)->shared_blocks()) {
        ASSERT_GT(loop->pool().references(block), 0);
      }
    }
  }
  Drain();
  EXPECT_GT(loop->scheduler().recomputed_tokens(), 0) << "nobody was preempted";
}

TEST_F(Capacity, NoStepReachesBeyondWhatWasReserved) {
  Use({64, 4}, OneClass(64, 32));
  for (int i = 0; i < 30; ++i) Arrive(Ask(0, Prompt(1 + 3 * (i % 7), 100 * i), 1 + i % 11, 1 + i % 3));
  while (loop->live() > 0) {
    Tick();
    std::int64_t tokens = 0;
    for (const StepRow& row : loop->last_step()->rows) {
      EXPECT_GE(row.num_tokens, 1);
      EXPECT_LE(row.first_position + row.num_tokens, row.num_blocks * 4);
      EXPECT_LE(row.first_position + row.num_tokens, 19 + 11 - 1) << "the last token is never stored";
      tokens += row.num_tokens;
    }
    EXPECT_EQ(tokens, std::ssize(loop->last_step()->token_ids));
    for (const auto& view : loop->Views()) {
      if (!view.running) continue;
      const BlockReservation& blocks = *loop->scheduler().Blocks(view.key);
      EXPECT_LE(blocks.held(), blocks.reserved());
    }
  }
}

TEST_F(Capacity, WhatIsReservedIsWhatIsEnforced) {
  Use({64, 4}, OneClass(64));
  const RequestKey key = Arrive(Ask(0, Prompt(10), 12, 3));
  Tick();
  EXPECT_EQ(loop->scheduler().Blocks(key)->reserved(), WorstBlocks(10, 12, 3, 4));
  Drain();
  for (const auto& output : loop->ended().at(key).output) EXPECT_EQ(output.size(), 12U);
}

TEST_F(Capacity, APrefixSharedAcrossClassesOutlivesItsFirstOwner) {
  Use({32, 4}, [] {
    Policy policy = OneClass(16);
    policy.classes[0].slot_guarantee = 8;
    policy.classes.push_back(Class("other", 16, 0, false, 0, 8));
    return policy;
  }());
  const RequestKey first = Arrive(Ask(0, Prompt(16), 4));
  Tick();
  const RequestKey second = Arrive(Ask(1, Prompt(16), 20));
  Tick();
  EXPECT_EQ(loop->pool().references(loop->scheduler().Blocks(second)->shared_blocks()[0]), 2);
  const std::int64_t charged = loop->pool().used_blocks(1);
  while (!loop->ended().contains(first)) Tick();
  EXPECT_EQ(loop->pool().used_blocks(0), 0);
  EXPECT_EQ(loop->pool().used_blocks(1), charged) << "charged fully to each, so nothing moves when one lets go";
  Drain();
}

}  // namespace
}  // namespace berth
