// A step that is planned and submitted while the one before runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "driven_scheduler.h"
#include "fakes/allocation_counter.h"

namespace berth {
namespace {

using test::Ask;
using test::LoopRequest;
using test::Prompt;

class Ahead : public DrivenScheduler {
 protected:
  void UseAhead(const KvPoolShape& shape, std::int64_t batched_tokens = 64) { Use(shape, batched_tokens, 0.0, 2); }
  // `count` steps, one of them still in flight at the end, as long as there is something to do.
  void Run(int count) {
    for (int i = 0; i < count; ++i) {
      const bool nothing = Submit().empty();
      if (scheduler->steps_in_flight() == (nothing ? 1 : 2)) Collect();
    }
  }
};

TEST_F(Ahead, FeedsTheTokenThatTheStepInFlightDraws) {
  UseAhead({16, 4});
  Add(0, Ask(0, Prompt(6), 5));
  Commit({}, {0});
  const StepPlan& first = Submit();
  EXPECT_TRUE(first.carried_tokens.empty());
  const StepPlan& second = Submit();
  ASSERT_EQ(second.rows.size(), 1U);
  EXPECT_EQ(second.rows[0].first_position, 6);
  EXPECT_EQ(second.token_ids, std::vector<TokenId>{kNoToken});
  ASSERT_EQ(second.carried_tokens.size(), 1U);
  EXPECT_EQ(second.carried_tokens[0].token_index, 0);
  EXPECT_EQ(second.carried_tokens[0].logit_row, 0);
  EXPECT_EQ(second.logit_rows[0].sampling.history.size(), 6U) << "the carried token is not in it";
  Collect();
  EXPECT_EQ(second.logit_rows[0].sampling.history.size(), 6U);
  FinishAhead(0);
}

TEST_F(Ahead, HasNoRowForWhatEndsByItsLength) {
  UseAhead({16, 4});
  Add(0, Ask(0, Prompt(6), 2));
  Add(1, Ask(0, Prompt(6, 50), 1));
  Commit({}, {0, 1});
  EXPECT_EQ(Submit().rows.size(), 2U);
  EXPECT_EQ(Submit().rows.size(), 1U) << "the second request's only token is in flight";
  Collect();
  EXPECT_TRUE(Submit().empty());
  EXPECT_EQ(scheduler->steps_in_flight(), 1);
  FinishAhead(0);
}

TEST_F(Ahead, GoesOnWithAPromptBehindTheChunkInFlight) {
  UseAhead({32, 4}, 7);
  Add(0, Ask(0, Prompt(18), 5));
  Commit({}, {0});
  EXPECT_EQ(Submit().rows[0].first_position, 0);
  EXPECT_EQ(Submit().rows[0].first_position, 7);
  Collect();
  EXPECT_EQ(Submit().rows[0].first_position, 14);
  Collect();
  EXPECT_EQ(Submit().rows[0].first_position, 18) << "and decodes behind its last chunk";
  Collect();
  FinishAhead(0);
}

TEST_F(Ahead, PartsAGroupInTheStepBehindItsPrompt) {
  UseAhead({40, 4});
  Add(0, Ask(0, Prompt(10), 8, 3));
  Commit({}, {0});
  Submit();
  const StepPlan& second = Submit();
  EXPECT_EQ(second.block_copies.size(), 2U);
  ASSERT_EQ(second.carried_tokens.size(), 3U);
  for (std::int32_t q = 0; q < 3; ++q) EXPECT_EQ(second.carried_tokens[static_cast<std::size_t>(q)].logit_row, q);
  Collect();
  End(0, 0);  // the one whose block the others copy
  Run(20);
  const auto alone = test::Alone(requests[0].request);
  for (const std::size_t q : {1U, 2U}) EXPECT_EQ(requests[0].output[q], alone[q]);
  EXPECT_EQ(requests[0].output[0].size(), 1U) << "what a ghost draws is dropped";
}

TEST_F(Ahead, WhatEndedLeavesItsBlocksToTheNextStepAtOnce) {
  UseAhead({4, 4});
  Add(0, Ask(0, Prompt(6), 9));
  Commit({}, {0});
  Submit();
  Submit();
  Collect();
  scheduler->Remove(0);  // as by a stop token; its second row is in flight
  EXPECT_EQ(pool->available_blocks(), 4);
  Add(1, Ask(0, Prompt(9, 300), 6, 1, 5));
  Commit({}, {1});
  Submit();
  Collect();
  EXPECT_EQ(requests[0].output[0].size(), 1U);
  EXPECT_TRUE(scheduler->shares().empty()) << "nobody has a part of a ghost's step";
  FinishAhead(1);
}

TEST_F(Ahead, APreemptionDropsTheTokenInFlightAndItIsDrawnAgain) {
  UseAhead({16, 4});
  Add(0, Ask(0, Prompt(18), 20));
  Commit({}, {0});
  Run(5);
  const std::size_t drawn = requests[0].output[0].size();
  Commit({0}, {});
  EXPECT_EQ(pool->available_blocks(), 16);
  Collect();
  EXPECT_EQ(requests[0].output[0].size(), drawn);
  OverwriteFreeBlocks();
  Commit({}, {0});
  FinishAhead(0);
}

TEST_F(Ahead, ARequestRunsAgainWhileAGhostOfItIsInFlight) {
  UseAhead({16, 4});
  Add(0, Ask(0, Prompt(18), 20));
  Commit({}, {0});
  Run(5);
  Commit({0}, {});
  Commit({}, {0});
  EXPECT_GT(scheduler->CachedTokens(0), 0);
  FinishAhead(0);
}

TEST_F(Ahead, CopiesOutAndInFollowEachOther) {
  UseAhead({16, 4, 16});
  Add(0, Ask(0, Prompt(18), 20));
  Commit({}, {0});
  Run(5);
  Commit({0}, {});
  EXPECT_EQ(Submit().swap_out.size(), 6U);
  Collect();
  Commit({}, {0});  // the copies out are in flight still
  Submit();
  EXPECT_EQ(scheduler->HostBlocks(0), 6);
  Collect();
  Commit({0}, {});  // and now those in
  EXPECT_EQ(scheduler->HostBlocks(0), 6) << "the host's memory still has all of it";
  Collect();
  OverwriteFreeBlocks();
  Commit({}, {0});
  const std::int64_t computed = scheduler->computed_tokens();
  EXPECT_EQ(Submit().rows.size(), 1U);
  Collect();
  EXPECT_EQ(scheduler->computed_tokens() - computed, 1);
  EXPECT_EQ(pool->host().used(), 0);
  FinishAhead(0);
}

TEST_F(Ahead, AFailedCopyOutFailsTheCopyInBehindIt) {
  UseAhead({16, 4, 16});
  Add(0, Ask(0, Prompt(18), 20));
  Commit({}, {0});
  Run(5);
  Collect();
  Commit({0}, {});
  Submit();
  Collect();
  OverwriteFreeBlocks();
  Commit({}, {0});
  FinishAhead(0);
  Add(1, Ask(0, Prompt(18, 500), 20));
  Commit({}, {1});
  Run(5);
  Collect();
  Commit({1}, {});
  Submit();
  Commit({}, {1});
  Submit();
  backend->FailNextStep();
  EXPECT_FALSE(Collect());
  EXPECT_TRUE(dropped.empty() || dropped == std::vector<RequestKey>{1});
  EXPECT_FALSE(Collect());
  EXPECT_EQ(dropped, std::vector<RequestKey>{1});
  scheduler->Remove(1);
}

TEST_F(Ahead, AFaultTouchesBothStepsAndWhatIsLeftGoesOn) {
  UseAhead({32, 4}, 6);
  Add(0, Ask(0, Prompt(6), 10));
  Add(1, Ask(0, Prompt(6, 100), 4));
  Commit({}, {0, 1});
  Submit();
  Submit();
  backend->FailNextStep();
  EXPECT_FALSE(Collect());
  EXPECT_EQ(dropped, std::vector<RequestKey>{0}) << "the second request had no room";
  EXPECT_FALSE(Collect());
  EXPECT_EQ(dropped, (std::vector<RequestKey>{0, 1}));
  for (const RequestKey key : {0, 1}) scheduler->Remove(key);
  Add(2, Ask(0, Prompt(6), 4));
  Commit({}, {2});
  EXPECT_EQ(scheduler->CachedTokens(2), 0) << "nothing of the failed steps can be found";
  FinishAhead(2);
}

TEST_F(Ahead, AStepThatWasNotTakenLeavesTheOneBeforeAsItIs) {
  UseAhead({32, 4});
  Add(0, Ask(0, Prompt(6), 10));
  Commit({}, {0});
  Submit();
  scheduler->PlanStep(test::At(0));
  EXPECT_EQ(scheduler->DropNewestStep().size(), 1U);
  EXPECT_TRUE(Collect());
  EXPECT_EQ(requests[0].output[0].size(), 1U);
}

TEST_F(Ahead, ALeaderThatEndsWithAChunkInFlightLeavesThePromptToTheNext) {
  UseAhead({40, 4}, 7);
  Add(0, Ask(0, Prompt(18), 12, 2));
  Commit({}, {0});
  while (requests[0].output[1].size() < 3) Run(1);
  Collect();
  Commit({0}, {});
  OverwriteFreeBlocks();
  Commit({}, {0});
  Run(2);  // 14 of the prompt's 16 full-block tokens, the last 7 in flight
  End(0, 0);
  const StepPlan& next = Submit();
  ASSERT_EQ(next.rows.size(), 1U);
  EXPECT_EQ(next.rows[0].first_position, 7) << "a ghost's chunk does not count";
  Collect();
  while (requests[0].output[1].size() < 12) Run(1);
  EXPECT_EQ(requests[0].output[1], test::Alone(requests[0].request)[1]);
}

TEST_F(Ahead, PromptLogprobsOfAGhostAreReportedByTheRowThatTakesItsPlace) {
  UseAhead({16, 4}, 10);
  LoopRequest request = Ask(0, Prompt(37), 4);
  request.prompt_logprobs = 0;
  Add(0, request);
  Commit({}, {0});
  std::int64_t reported = 0;
  const auto collect = [&] {
    Collect();
    for (const TargetRows& rows : scheduler->target_rows()) reported += rows.count;
  };
  Submit();
  Submit();
  collect();
  Commit({0}, {});
  collect();
  EXPECT_EQ(reported, 10);
  Commit({}, {0});
  while (requests[0].output[0].empty()) {
    Submit();
    if (scheduler->steps_in_flight() == 2) collect();
  }
  EXPECT_EQ(reported, 36);
  FinishAhead(0);
}

TEST_F(Ahead, CountsTheTokenInFlightAgainstTheLeastOutput) {
  static const std::vector<TokenId> banned = {3};
  static const std::vector<TokenId> early_banned = {3, 4};
  UseAhead({64, 4});
  Add(0, Ask(0, Prompt(6), 12), [&](ScheduledRequest* request) {
    request->min_output_tokens = 4;
    request->banned = banned;
    request->early_banned = early_banned;
  });
  Commit({}, {0});
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(Submit().logit_rows[0].sampling.banned.size(), i < 4 ? 2U : 1U) << "token " << i;
    if (scheduler->steps_in_flight() == 2) Collect();
  }
  FinishAhead(0);
}

TEST_F(Ahead, BorrowsOfARequestThatIsGoneUntilItsStepsAreDone) {
  UseAhead({16, 4});
  auto spec = std::make_shared<SamplingSpec>();
  const std::weak_ptr<SamplingSpec> lent = spec;
  Add(0, Ask(0, Prompt(6), 9), [&](ScheduledRequest* request) {
    request->sampling = spec.get();
    request->lender = std::move(spec);
  });
  Commit({}, {0});
  Submit();
  Submit();
  Collect();
  scheduler->Remove(0);
  Add(1, Ask(0, Prompt(6, 50), 1));
  Commit({}, {1});
  EXPECT_FALSE(scheduler->PlanStep(test::At(0)).empty());
  scheduler->DropNewestStep();
  EXPECT_FALSE(lent.expired()) << "the older one still names it";
  Collect();
  EXPECT_TRUE(lent.expired());
}

TEST_F(Ahead, AllocatesNothingOnceItRuns) {
  UseAhead({400, 4});
  for (RequestKey key = 0; key < 8; ++key) {
    Add(key, Ask(0, Prompt(5, static_cast<TokenId>(100 * key)), 150));
    Commit({}, {key});
  }
  std::vector<std::pair<std::int64_t, std::size_t>> in_flight;
  in_flight.reserve(8);
  std::int64_t before = 0;
  for (int i = 0; i < 140; ++i) {
    if (i == 100) before = test::Allocations();
    const StepPlan& planned = scheduler->PlanStep(test::At(0));
    in_flight.emplace_back(planned.step, planned.logit_rows.size());
    if (in_flight.size() < 2) continue;
    scratch.step = in_flight.front().first;
    scratch.logits.assign(in_flight.front().second, {});
    in_flight.erase(in_flight.begin());
    scheduler->ApplyStep(scratch);
  }
  EXPECT_EQ(test::Allocations(), before);
}

}  // namespace
}  // namespace berth
