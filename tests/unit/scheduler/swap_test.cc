// What is preempted goes to the host's memory and comes back: the same tokens, nothing computed again.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "driven_scheduler.h"

namespace berth {
namespace {

using test::Ask;
using test::LoopRequest;
using test::Prompt;

class Swap : public DrivenScheduler {};

TEST_F(Swap, WhatWasPreemptedGoesOnWithItsTokensAndComputesNoneTwice) {
  Use({16, 4, 16});
  Add(0, Ask(0, Prompt(18), 20));
  Commit({}, {0});
  for (int i = 0; i < 5; ++i) Step();
  Commit({0}, {});
  EXPECT_EQ(pool->available_blocks(), 16) << "its blocks are free at once";
  Step();
  EXPECT_TRUE(step.rows.empty()) << "a step of copies alone";
  EXPECT_EQ(step.swap_out.size(), 6U) << "22 tokens";
  EXPECT_EQ(scheduler->HostBlocks(0), 6);
  OverwriteFreeBlocks();
  const std::int64_t computed = scheduler->computed_tokens();
  Commit({}, {0});
  EXPECT_EQ(scheduler->CachedTokens(0), 0);
  Step();
  EXPECT_EQ(step.swap_in.size(), 6U);
  EXPECT_EQ(step.rows.size(), 1U) << "and it decodes in the same step";
  EXPECT_EQ(scheduler->computed_tokens() - computed, 1);
  EXPECT_EQ(pool->host().used(), 0);
  Finish(0);
  EXPECT_EQ(scheduler->recomputed_tokens(), 0);
  EXPECT_EQ(scheduler->swapped_out_blocks(), 6);
  EXPECT_EQ(scheduler->swapped_in_blocks(), 6);
}

TEST_F(Swap, WhatTheCacheStillHasIsNotCopiedBack) {
  Use({16, 4, 16});
  Add(0, Ask(0, Prompt(18), 20));
  Add(1, Ask(0, Prompt(18), 3, 1, 2));  // the same prompt, other tokens
  Commit({}, {0});
  for (int i = 0; i < 5; ++i) Step();
  Commit({}, {1});
  Step();
  Commit({0}, {});
  Step();
  EXPECT_EQ(step.swap_out.size(), 6U) << "blocks that others hold too";
  OverwriteFreeBlocks();
  Commit({}, {0});
  EXPECT_EQ(scheduler->CachedTokens(0), 16);
  Step();
  EXPECT_EQ(step.swap_in.size(), 2U);
  Finish(0);
  EXPECT_EQ(scheduler->recomputed_tokens(), 0);
}

TEST_F(Swap, WhatComesBackCanBeFoundByOthers) {
  Use({24, 4, 16});
  Add(0, Ask(0, Prompt(18), 20));
  Commit({}, {0});
  Step();
  Commit({0}, {});
  Step();
  OverwriteFreeBlocks();
  Commit({}, {0});
  Step();
  Add(1, Ask(0, Prompt(18), 2));
  Commit({}, {1});
  EXPECT_EQ(scheduler->CachedTokens(1), 16);
}

TEST_F(Swap, APrefillParkedInTheMiddleOfABlockGoesOnThere) {
  Use({16, 4, 16}, 11);
  Add(0, Ask(0, Prompt(37), 4));
  Commit({}, {0});
  Step();
  Step();
  Commit({0}, {});
  Step();
  EXPECT_EQ(step.swap_out.size(), 6U) << "22 tokens";
  OverwriteFreeBlocks();
  Commit({}, {0});
  Step();
  ASSERT_EQ(step.rows.size(), 1U);
  EXPECT_EQ(step.rows[0].first_position, 22);
  Commit({0}, {});
  Step();
  EXPECT_EQ(step.swap_out.size(), 9U) << "33 tokens";
  OverwriteFreeBlocks();
  Commit({}, {0});
  Finish(0);
  EXPECT_EQ(scheduler->recomputed_tokens(), 0);
}

TEST_F(Swap, AGroupComesBackWithEveryChoiceOfIt) {
  Use({40, 4, 40});
  Add(0, Ask(0, Prompt(10), 12, 3));
  Commit({}, {0});
  for (int i = 0; i < 5; ++i) Step();
  Commit({0}, {});
  Step();
  EXPECT_EQ(step.swap_out.size(), 2U + 3 * 2U);
  OverwriteFreeBlocks();
  Commit({}, {0});
  Step();
  EXPECT_EQ(step.rows.size(), 3U);
  Finish(0);
  EXPECT_EQ(scheduler->recomputed_tokens(), 0);
}

TEST_F(Swap, AGroupPreemptedBeforeItsChoicesPartKeepsWhatWasComputed) {
  Use({40, 4, 40});
  Add(0, Ask(0, Prompt(11), 12, 3));
  Commit({}, {0});
  Step();  // the prompt; each choice has drawn a token, none has a block of its own with content
  Commit({0}, {});
  Step();
  EXPECT_EQ(step.swap_out.size(), 3U);
  OverwriteFreeBlocks();
  Commit({}, {0});
  Step();
  EXPECT_EQ(step.swap_in.size(), 3U);
  Finish(0);
}

TEST_F(Swap, AChoiceThatEndedIsNotCopied) {
  Use({40, 4, 40});
  Add(0, Ask(0, Prompt(10), 12, 3));
  Commit({}, {0});
  for (int i = 0; i < 5; ++i) Step();
  End(0, 0);
  Commit({0}, {});
  Step();
  EXPECT_EQ(step.swap_out.size(), 2U + 2 * 2U);
  OverwriteFreeBlocks();
  Commit({}, {0});
  Step();
  EXPECT_EQ(step.rows.size(), 2U);
  const auto alone = test::Alone(requests[0].request);
  for (const std::size_t q : {1U, 2U}) {
    EXPECT_TRUE(std::equal(requests[0].output[q].begin(), requests[0].output[q].end(), alone[q].begin()));
  }
}

TEST_F(Swap, AChoiceThatEndsBeforeItsBlocksAreBackLeavesThemToOthers) {
  Use({40, 4, 40});
  Add(0, Ask(0, Prompt(10), 12, 2));
  Commit({}, {0});
  for (int i = 0; i < 5; ++i) Step();
  Commit({0}, {});
  Step();
  OverwriteFreeBlocks();
  Commit({}, {0});
  const std::vector<BlockId> released = End(0, 0);
  EXPECT_EQ(released.size(), 2U);
  Step();
  EXPECT_EQ(step.swap_in.size(), 4U);
  for (const SwapCopy& copy : step.swap_in) EXPECT_EQ(std::ranges::count(released, copy.block), 0);
}

TEST_F(Swap, PromptLogprobsAreReportedOnceAndNothingIsComputedTwice) {
  Use({16, 4, 16}, 10);
  LoopRequest request = Ask(0, Prompt(37), 4);
  request.prompt_logprobs = 0;
  Add(0, request);
  Commit({}, {0});
  std::int64_t reported = 0;
  const auto count = [&] {
    reported += std::ranges::count_if(step.logit_rows, [](const LogitRow& row) { return row.target != kNoToken; });
  };
  for (int i = 0; i < 2; ++i) {
    Step();
    count();
  }
  Commit({0}, {});
  Step();
  Commit({}, {0});
  while (requests[0].output[0].empty()) {
    Step();
    count();
  }
  EXPECT_EQ(reported, 36);
  EXPECT_EQ(scheduler->recomputed_tokens(), 0);
  Finish(0);
}

TEST_F(Swap, PromptLogprobsAreReportedOnceAlsoWhereTheChoiceThatComputedThemHasEnded) {
  Use({40, 4});
  LoopRequest request = Ask(0, Prompt(10), 12, 2);
  request.prompt_logprobs = 0;
  Add(0, request);
  Commit({}, {0});
  std::int64_t reported = 0;
  on_plan = [&](const StepPlan& planned) {
    reported += std::ranges::count_if(planned.logit_rows, [](const LogitRow& row) { return row.target != kNoToken; });
  };
  Step();
  EXPECT_EQ(reported, 9);
  End(0, 0);  // before the choices part
  Commit({0}, {});
  Commit({}, {0});
  while (requests[0].live > 0) Step();
  EXPECT_EQ(reported, 9);
  EXPECT_EQ(requests[0].output[1], test::Alone(request)[1]);
}

TEST_F(Swap, WithTooLittleHostMemoryItIsComputedAgain) {
  Use({16, 4, 5});
  Add(0, Ask(0, Prompt(18), 20));
  Commit({}, {0});
  for (int i = 0; i < 5; ++i) Step();
  Commit({0}, {});
  Step();
  EXPECT_TRUE(step.empty());
  OverwriteFreeBlocks();
  Commit({}, {0});
  Finish(0);
  EXPECT_EQ(scheduler->recomputed_tokens(), 22);
  EXPECT_EQ(scheduler->swapped_out_blocks(), 0);
}

TEST_F(Swap, WhereCopyingCostsMoreThanComputingItIsComputedAgain) {
  // Nothing of 22 tokens is expected to stay cached once 12 other blocks are promised: 22 ms against 6 + 6 copies.
  for (const double copy_seconds : {0.0015, 0.0025}) {
    Use({16, 4, 16}, 64, copy_seconds);
    Add(0, Ask(0, Prompt(18), 20));
    Add(1, Ask(0, Prompt(60, 500), 5));
    Commit({}, {0});
    for (int i = 0; i < 5; ++i) Step();
    Commit({0}, {1});
    Step();
    EXPECT_EQ(step.swap_out.size(), copy_seconds < 0.002 ? 6U : 0U);
    for (const RequestKey key : {0, 1}) scheduler->Remove(key);
  }
}

TEST_F(Swap, WhatStaysCachedAnywayIsNotCopiedOut) {
  Use({64, 4, 64}, 64, 0.0001);
  Add(0, Ask(0, Prompt(16), 20));
  Commit({}, {0});
  Step();  // four full blocks, and room for everyone
  Commit({0}, {});
  Step();
  EXPECT_TRUE(step.empty());
  Commit({}, {0});
  Finish(0);
}

TEST_F(Swap, ACopyOutThatFailedIsComputedAgainAndTheRequestLives) {
  Use({16, 4, 16});
  Add(0, Ask(0, Prompt(18), 20));
  Commit({}, {0});
  for (int i = 0; i < 5; ++i) Step();
  Commit({0}, {});
  backend->FailNextStep();
  EXPECT_FALSE(Step());
  EXPECT_TRUE(dropped.empty());
  EXPECT_EQ(pool->host().used(), 0);
  OverwriteFreeBlocks();
  Commit({}, {0});
  Finish(0);
  EXPECT_EQ(scheduler->recomputed_tokens(), 22);
}

TEST_F(Swap, ACopyInThatFailedEndsTheRequest) {
  Use({16, 4, 16});
  Add(0, Ask(0, Prompt(18), 20));
  Commit({}, {0});
  for (int i = 0; i < 5; ++i) Step();
  Commit({0}, {});
  Step();
  OverwriteFreeBlocks();
  Commit({}, {0});
  backend->FailNextStep();
  EXPECT_FALSE(Step());
  EXPECT_EQ(dropped, std::vector<RequestKey>{0});
  EXPECT_EQ(pool->host().used(), 0);
}

TEST_F(Swap, AParkedRequestThatEndsReturnsItsHostBlocks) {
  Use({16, 4, 16});
  for (const RequestKey key : {0, 1}) {
    Add(key, Ask(0, Prompt(18, static_cast<TokenId>(100 * key)), 20));
    Commit({}, {key});
    for (int i = 0; i < 5; ++i) Step();
    Commit({key}, {});
    if (key == 1) scheduler->Remove(key);  // before the copies are made
    Step();
    EXPECT_EQ(step.swap_out.size(), key == 0 ? 6U : 0U);
    scheduler->Remove(key);
    EXPECT_EQ(pool->host().used(), 0);
  }
}

TEST_F(Swap, NoBlockIsCopiedIntoThatTheSameStepCopiesOut) {
  Use({10, 4, 32});
  Add(0, Ask(0, Prompt(18), 20));
  Add(1, Ask(0, Prompt(18, 500), 20));
  Commit({}, {0});
  for (int i = 0; i < 5; ++i) Step();
  // They take turns on one pool: each comes back into blocks that the other leaves in the same step. The backend
  // complains of every block that is named twice.
  RequestKey running = 0;
  for (int turn = 0; turn < 6; ++turn) {
    Commit({running}, {1 - running});
    running = 1 - running;
    for (int i = 0; i < 2; ++i) Step();
  }
  Finish(running);
  Commit({}, {1 - running});
  Finish(1 - running);
}

TEST_F(Swap, AChoiceThatEndsWhileItsPromptIsComputedAgainLeavesThatToTheNextOne) {
  Use({40, 4}, 7);
  Add(0, Ask(0, Prompt(18), 12, 2));
  Commit({}, {0});
  while (requests[0].output[1].size() < 3) Step();
  Commit({0}, {});
  OverwriteFreeBlocks();
  Commit({}, {0});
  Step();  // 7 of the prompt's 16 full-block tokens
  End(0, 0);
  Step();
  ASSERT_EQ(step.rows.size(), 1U);
  EXPECT_EQ(step.rows[0].first_position, 7);
  while (requests[0].output[1].size() < 12) Step();
  EXPECT_EQ(requests[0].output[1], test::Alone(requests[0].request)[1]);
}

}  // namespace
}  // namespace berth
