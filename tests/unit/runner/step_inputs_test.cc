#include "runner/step_inputs.h"

#include <gtest/gtest.h>

#include <vector>

namespace berth {
namespace {

constexpr StepLimits kLimits = {.vocab_size = 100, .max_context_tokens = 64, .max_step_tokens = 32, .pool = {8, 4, 3}};
const SamplingSpec kSpec;

// A prefill chunk of 6 tokens after 2 stored ones, and a decode row at position 8.
StepPlan GoodPlan() {
  StepPlan plan;
  plan.token_ids = {10, 11, 12, 13, 14, 15, 99};
  plan.block_ids = {5, 3, 7, 0, 1};
  plan.rows = {
      {.sequence = 1, .first_position = 2, .token_begin = 0, .num_tokens = 6, .block_begin = 0, .num_blocks = 2},
      {.sequence = 2, .first_position = 8, .token_begin = 6, .num_tokens = 1, .block_begin = 2, .num_blocks = 3}};
  LogitRow target;
  target.token_index = 4;
  target.target = 15;
  LogitRow drawn;
  drawn.token_index = 6;
  drawn.sampling.spec = &kSpec;
  plan.logit_rows = {target, drawn};
  return plan;
}

void Pack(const StepPlan& plan) { StepInputs(kLimits).Pack(plan); }

TEST(StepInputs, KeepsOnlyConsequences) {
  const StepPlan plan = GoodPlan();
  StepInputs inputs(kLimits);
  inputs.Pack(plan);
  EXPECT_EQ(inputs.num_tokens(), 7);
  ASSERT_EQ(inputs.sequences().size(), 2U);
  const SequenceInput& chunk = inputs.sequences()[0];
  EXPECT_EQ(chunk.token_begin, 0);
  EXPECT_EQ(chunk.query_tokens, 6);
  EXPECT_EQ(chunk.first_position, 2);
  EXPECT_EQ(chunk.kv_tokens, 8);
  EXPECT_EQ(chunk.block_ids, plan.block_ids.data());
  const SequenceInput& decode = inputs.sequences()[1];
  EXPECT_EQ(decode.query_tokens, 1);
  EXPECT_EQ(decode.kv_tokens, 9);
  EXPECT_EQ(decode.block_ids, plan.block_ids.data() + 2);
  const std::vector<std::int32_t> positions(inputs.positions().begin(), inputs.positions().end());
  EXPECT_EQ(positions, (std::vector<std::int32_t>{2, 3, 4, 5, 6, 7, 8}));
  const std::vector<std::int64_t> slots(inputs.slots().begin(), inputs.slots().end());
  EXPECT_EQ(slots, (std::vector<std::int64_t>{22, 23, 12, 13, 14, 15, 4}));
  EXPECT_EQ(inputs.logit_rows().size(), 2U);
}

TEST(StepInputs, PacksPlanAfterPlan) {
  StepInputs inputs(kLimits);
  for (int step = 0; step < 3; ++step) {
    inputs.Pack(GoodPlan());
    EXPECT_EQ(inputs.sequences().size(), 2U);
    EXPECT_EQ(inputs.slots().size(), 7U);
  }
}

TEST(StepInputs, SharedBlocksMayBeReadByAllAndSeveralChoicesDrawFromOnePosition) {
  StepPlan plan = GoodPlan();
  plan.block_ids = {5, 3, 5, 0, 1};  // block 5: written by row 0 from position 2 on ...
  plan.rows[0].first_position = 4;   // ... unless it begins in its second block
  plan.rows[0].num_tokens = 4;
  plan.token_ids.erase(plan.token_ids.begin(), plan.token_ids.begin() + 2);
  plan.rows[1].token_begin = 4;
  plan.logit_rows[0].token_index = 4;
  plan.logit_rows[1].token_index = 4;
  Pack(plan);
}

TEST(StepInputs, UnusedEndsOfTablesMayNameAnything) {
  StepPlan plan = GoodPlan();
  plan.block_ids = {5, 3, 7, 0, 1, 5};
  plan.rows[1].num_blocks = 4;  // its fourth block, not in use yet, is one that row 0 writes
  Pack(plan);
}

TEST(StepInputs, AStepMayHaveCopiesAndNoRows) {
  StepPlan plan;
  plan.swap_out = {{4, 0}};
  StepInputs inputs(kLimits);
  inputs.Pack(plan);
  EXPECT_EQ(inputs.num_tokens(), 0);
  EXPECT_EQ(inputs.swap_out().size(), 1U);
  plan.Clear();
  plan.swap_in = {{4, 0}};
  inputs.Pack(plan);
  EXPECT_EQ(inputs.swap_out().size(), 0U);
  EXPECT_EQ(inputs.swap_in().size(), 1U);
  plan.Clear();
  plan.block_copies = {{4, 2}};
  inputs.Pack(plan);
  EXPECT_EQ(inputs.block_copies().size(), 1U);
}

constexpr StepLimits kCarryingLimits = {
    .vocab_size = 100, .max_context_tokens = 64, .max_step_tokens = 32, .pool = {8, 4, 3}, .carried_tokens = true};

// After GoodPlan: its second row goes on with what its second logit row draws.
StepPlan CarryingPlan() {
  StepPlan plan;
  plan.token_ids = {kNoToken};
  plan.carried_tokens = {{.token_index = 0, .logit_row = 1}};
  plan.block_ids = {7, 0, 1};
  plan.rows = {
      {.sequence = 2, .first_position = 9, .token_begin = 0, .num_tokens = 1, .block_begin = 0, .num_blocks = 3}};
  return plan;
}

TEST(StepInputs, ATokenMayBeCarriedFromTheStepPackedBefore) {
  StepInputs inputs(kCarryingLimits);
  inputs.Pack(GoodPlan());
  const StepPlan plan = CarryingPlan();
  inputs.Pack(plan);
  ASSERT_EQ(inputs.carried_tokens().size(), 1U);
  EXPECT_EQ(inputs.carried_tokens()[0].logit_row, 1);
  EXPECT_EQ(inputs.token_ids()[0], kNoToken);
}

TEST(StepInputs, WhatWasSwappedOutServesOthersInTheSameStep) {
  StepPlan plan = GoodPlan();
  plan.swap_out = {{3, 0}, {5, 1}, {2, 2}};  // 3 and 5 are then written by row 0
  plan.block_copies = {{4, 2}};              // and 2 is a copy's target
  Pack(plan);
  plan = GoodPlan();
  plan.swap_out = {{6, 0}, {6, 2}};  // a block that two sequences shared
  plan.swap_in = {{5, 1}};           // row 0 goes on where it was swapped in
  plan.block_copies = {{5, 4}, {6, 2}};
  Pack(plan);
}

using StepInputsDeathTest = testing::Test;

TEST(StepInputsDeathTest, TokensCarriedAgainstTheRulesCrash) {
  const auto pack = [](const StepPlan& plan, const StepLimits& limits = kCarryingLimits) {
    StepInputs inputs(limits);
    inputs.Pack(GoodPlan());
    inputs.Pack(plan);
  };
  EXPECT_DEATH(pack(CarryingPlan(), kLimits), "carried_tokens");
  StepPlan plan = CarryingPlan();
  plan.token_ids[0] = 5;
  EXPECT_DEATH(pack(plan), "kNoToken");
  plan = CarryingPlan();
  plan.carried_tokens.clear();
  EXPECT_DEATH(pack(plan), "vocab_size");
  plan = CarryingPlan();
  plan.carried_tokens[0].token_index = 1;
  EXPECT_DEATH(pack(plan), "vocab_size");
  plan = CarryingPlan();
  plan.carried_tokens.push_back(plan.carried_tokens[0]);
  EXPECT_DEATH(pack(plan), "carried_tokens.end");
  for (const std::int32_t row : {-1, 2}) {
    plan = CarryingPlan();
    plan.carried_tokens[0].logit_row = row;
    EXPECT_DEATH(pack(plan), "draws_.size");
  }
  plan = CarryingPlan();
  plan.carried_tokens[0].logit_row = 0;  // a target: nothing is drawn
  EXPECT_DEATH(pack(plan), "draws_");
}

TEST(StepInputsDeathTest, TokensOutsideTheVocabularyCrash) {
  for (const TokenId id : {-1, 100}) {
    StepPlan plan = GoodPlan();
    plan.token_ids[3] = id;
    EXPECT_DEATH(Pack(plan), "vocab_size");
  }
}

TEST(StepInputsDeathTest, EmptyAndOversizedStepsCrash) {
  EXPECT_DEATH(Pack(StepPlan{}), "check failed");
  StepPlan plan;
  plan.token_ids.assign(33, 1);
  EXPECT_DEATH(Pack(plan), "max_step_tokens");
}

TEST(StepInputsDeathTest, RowsThatOverlapOrLeaveTokensOutCrash) {
  StepPlan overlap = GoodPlan();
  overlap.rows[1].token_begin = 5;
  EXPECT_DEATH(Pack(overlap), "token_begin");
  StepPlan gap = GoodPlan();
  gap.rows[0].num_tokens = 5;
  EXPECT_DEATH(Pack(gap), "token_begin");
  StepPlan left_over = GoodPlan();
  left_over.token_ids.push_back(1);
  EXPECT_DEATH(Pack(left_over), "token_ids.size");
  StepPlan empty_row = GoodPlan();
  empty_row.rows[0].num_tokens = 0;
  EXPECT_DEATH(Pack(empty_row), "num_tokens");
  StepPlan beyond = GoodPlan();
  beyond.rows[1].num_tokens = 2;
  EXPECT_DEATH(Pack(beyond), "num_tokens");
}

TEST(StepInputsDeathTest, PositionsOutsideTheContextCrash) {
  StepPlan plan = GoodPlan();
  plan.rows[0].first_position = -1;
  EXPECT_DEATH(Pack(plan), "first_position");
  plan.rows[0].first_position = 59;
  EXPECT_DEATH(Pack(plan), "max_context_tokens");
}

TEST(StepInputsDeathTest, BadBlockTablesCrash) {
  StepPlan too_short = GoodPlan();
  too_short.rows[0].num_blocks = 1;
  EXPECT_DEATH(Pack(too_short), "CeilDiv");
  StepPlan outside_list = GoodPlan();
  outside_list.rows[1].num_blocks = 4;
  EXPECT_DEATH(Pack(outside_list), "block_ids.size");
  for (const BlockId id : {-1, 8}) {
    StepPlan outside_pool = GoodPlan();
    outside_pool.block_ids[1] = id;
    EXPECT_DEATH(Pack(outside_pool), "num_blocks");
  }
}

TEST(StepInputsDeathTest, BlockCopiesThatDependOnTheirOrderOrLeaveThePoolCrash) {
  StepPlan good = GoodPlan();
  good.block_copies = {{4, 6}, {4, 2}};
  Pack(good);
  StepPlan twice = GoodPlan();
  twice.block_copies = {{4, 6}, {2, 6}};
  EXPECT_DEATH(Pack(twice), "stamp");
  StepPlan chained = GoodPlan();
  chained.block_copies = {{4, 6}, {6, 2}};
  EXPECT_DEATH(Pack(chained), "stamp");
  StepPlan outside = GoodPlan();
  outside.block_copies = {{4, 8}};
  EXPECT_DEATH(Pack(outside), "num_blocks");
}

TEST(StepInputsDeathTest, SwapsThatMeetOrLeaveThePoolsCrash) {
  for (const SwapCopy outside : {SwapCopy{8, 0}, SwapCopy{-1, 0}}) {
    StepPlan out = GoodPlan();
    out.swap_out = {outside};
    EXPECT_DEATH(Pack(out), "num_blocks");
    StepPlan in = GoodPlan();
    in.swap_in = {outside};
    EXPECT_DEATH(Pack(in), "num_blocks");
  }
  for (const SwapCopy outside : {SwapCopy{4, 3}, SwapCopy{4, -1}}) {
    StepPlan out = GoodPlan();
    out.swap_out = {outside};
    EXPECT_DEATH(Pack(out), "host_blocks");
    StepPlan in = GoodPlan();
    in.swap_in = {outside};
    EXPECT_DEATH(Pack(in), "host_blocks");
  }
  StepPlan one_host_block_for_two = GoodPlan();
  one_host_block_for_two.swap_out = {{4, 0}, {6, 0}};
  EXPECT_DEATH(Pack(one_host_block_for_two), "named");
  StepPlan out_and_in_of_a_host_block = GoodPlan();
  out_and_in_of_a_host_block.swap_out = {{4, 0}};
  out_and_in_of_a_host_block.swap_in = {{6, 0}};
  EXPECT_DEATH(Pack(out_and_in_of_a_host_block), "named");
  StepPlan out_and_in_of_a_block = GoodPlan();
  out_and_in_of_a_block.swap_out = {{4, 0}};
  out_and_in_of_a_block.swap_in = {{4, 1}};
  EXPECT_DEATH(Pack(out_and_in_of_a_block), "swapped_out");
  StepPlan two_into_one_block = GoodPlan();
  two_into_one_block.swap_in = {{4, 0}, {4, 1}};
  EXPECT_DEATH(Pack(two_into_one_block), "swapped_in");
  StepPlan overwritten = GoodPlan();
  overwritten.swap_in = {{4, 0}};
  overwritten.block_copies = {{2, 4}};
  EXPECT_DEATH(Pack(overwritten), "swapped_in");
}

TEST(StepInputsDeathTest, AWrittenBlockThatAnotherRowUsesCrashes) {
  StepPlan both_write = GoodPlan();
  both_write.block_ids[4] = 3;
  EXPECT_DEATH(Pack(both_write), "stamp");
  StepPlan other_reads = GoodPlan();
  other_reads.block_ids[2] = 5;
  EXPECT_DEATH(Pack(other_reads), "stamp");
  StepPlan twice_in_a_table = GoodPlan();
  twice_in_a_table.block_ids[2] = 1;
  EXPECT_DEATH(Pack(twice_in_a_table), "stamp");
}

TEST(StepInputsDeathTest, BadLogitRowsCrash) {
  StepPlan descending = GoodPlan();
  std::swap(descending.logit_rows[0], descending.logit_rows[1]);
  EXPECT_DEATH(Pack(descending), "token_index");
  StepPlan outside = GoodPlan();
  outside.logit_rows[1].token_index = 7;
  EXPECT_DEATH(Pack(outside), "token_index");
  StepPlan target = GoodPlan();
  target.logit_rows[0].target = 100;
  EXPECT_DEATH(Pack(target), "target");
  StepPlan spec = GoodPlan();
  spec.logit_rows[1].sampling.spec = nullptr;
  EXPECT_DEATH(Pack(spec), "spec");
  StepPlan top = GoodPlan();
  top.logit_rows[1].top_logprobs = 101;
  EXPECT_DEATH(Pack(top), "top_logprobs");
}

}  // namespace
}  // namespace berth
