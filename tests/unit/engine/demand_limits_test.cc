#include "engine/demand_limits.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <variant>

namespace berth {
namespace {

// One class and what it may have of the pool; the rest is common.
DemandLimits Limits(const KvPoolShape& pool, std::int64_t guarantee_blocks,
                    const std::function<void(ClassPolicy*)>& change = {}) {
  Policy policy;
  policy.classes.resize(1);
  policy.classes[0].name = "only";
  policy.classes[0].kv_guarantee_blocks = guarantee_blocks;
  policy.classes[0].slot_guarantee = 4;
  if (change) change(policy.classes.data());
  policy.tenants.resize(1);
  policy.max_running_sequences = 4;
  return {pool, policy, /*vocab_size=*/100, /*max_context_tokens=*/64};
}

const DemandLimits& Standard() {
  static const DemandLimits limits = Limits({.num_blocks = 10, .block_tokens = 4}, 10);
  return limits;
}

const DemandLimits& Roomy() {
  static const DemandLimits limits = Limits({.num_blocks = 100, .block_tokens = 4}, 100);
  return limits;
}

StoppingSpec Output(std::int32_t tokens, bool is_default = false) {
  StoppingSpec stopping;
  stopping.max_output_tokens = tokens;
  stopping.max_output_tokens_is_default = is_default;
  return stopping;
}

KvDemand Demand(const DemandLimits& limits, std::int64_t prompt_tokens, const StoppingSpec& stopping,
                std::int32_t n = 1) {
  return std::get<KvDemand>(limits.EstimateDemand(0, 0, prompt_tokens, n, stopping));
}

Refusal Refused(const DemandLimits& limits, std::int64_t prompt_tokens, const StoppingSpec& stopping,
                std::int32_t n = 1) {
  return std::get<Refusal>(limits.EstimateDemand(0, 0, prompt_tokens, n, stopping));
}

TEST(EstimateDemand, TellsTheWorstCaseInBlocks) {
  const KvDemand demand = Demand(Standard(), 10, Output(7));
  EXPECT_EQ(demand.prompt_tokens, 10);
  EXPECT_EQ(demand.max_output_tokens, 7);
  EXPECT_EQ(demand.worst_blocks, 4);
  EXPECT_EQ(Demand(Standard(), 40, Output(1)).worst_blocks, 10) << "the whole pool";
}

TEST(EstimateDemand, CountsThePromptOnceForAllChoices) {
  EXPECT_EQ(Demand(Standard(), 10, Output(7), 3).worst_blocks, 2 + 3 * 2);
  EXPECT_EQ(Demand(Standard(), 10, Output(1), 3).worst_blocks, 3) << "nothing is stored behind the prompt";
}

TEST(EstimateDemand, CutsADefaultToTheContextAndRefusesAnAskedOne) {
  EXPECT_EQ(Demand(Roomy(), 60, Output(256, true)).max_output_tokens, 4);
  EXPECT_EQ(Demand(Roomy(), 60, Output(4)).max_output_tokens, 4);
  const Refusal refusal = Refused(Roomy(), 60, Output(5));
  EXPECT_EQ(refusal.reason, RefusalReason::kRequestTooLarge);
  EXPECT_EQ(refusal.limit_name, "context_tokens");
  EXPECT_EQ(refusal.limit, 64);
  EXPECT_EQ(refusal.asked, 65);
}

TEST(EstimateDemand, CutsADefaultToWhatTheClassLeavesAndRefusesAnAskedOne) {
  const DemandLimits limits = Limits({.num_blocks = 100, .block_tokens = 4}, 100, [](ClassPolicy* c) {
    c->max_sequence_tokens = 40;
    c->max_output_tokens = 20;
  });
  EXPECT_EQ(Demand(limits, 5, Output(256, true)).max_output_tokens, 20);
  EXPECT_EQ(Demand(limits, 30, Output(256, true)).max_output_tokens, 10);
  EXPECT_EQ(Refused(limits, 5, Output(21)).limit_name, "max_output_tokens");
  EXPECT_EQ(Refused(limits, 30, Output(11)).limit_name, "max_sequence_tokens");
  EXPECT_EQ(Refused(limits, 40, Output(256, true)).limit_name, "max_sequence_tokens") << "no room for one token";
}

TEST(EstimateDemand, RefusesAPromptThatLeavesNoRoomForOutputEvenByDefault) {
  for (const std::int64_t prompt_tokens :
       {std::int64_t{64}, std::int64_t{65}, std::numeric_limits<std::int64_t>::max() - 1}) {
    const Refusal refusal = Refused(Standard(), prompt_tokens, Output(256, true));
    EXPECT_EQ(refusal.limit_name, "context_tokens");
    EXPECT_EQ(refusal.asked, prompt_tokens + 1);
  }
}

TEST(EstimateDemand, RefusesWhatTheClassCanNeverHave) {
  const Refusal whole_pool = Refused(Standard(), 40, Output(2));
  EXPECT_EQ(whole_pool.reason, RefusalReason::kRequestTooLarge);
  EXPECT_EQ(whole_pool.limit_name, "kv_blocks");
  EXPECT_EQ(whole_pool.limit, 10);
  EXPECT_EQ(whole_pool.asked, 11);
  const DemandLimits small = Limits({.num_blocks = 10, .block_tokens = 4}, 6);
  EXPECT_EQ(Refused(small, 25, Output(1)).limit, 6);
  const Refusal sequences = Refused(Standard(), 2, Output(2), 5);
  EXPECT_EQ(sequences.limit_name, "running_sequences");
  EXPECT_EQ(sequences.limit, 4);
}

TEST(EstimateDemand, RefusesNothing) {
  EXPECT_EQ(Refused(Standard(), 0, Output(1)).reason, RefusalReason::kInvalidRequest);
  EXPECT_EQ(Refused(Standard(), -5, Output(1)).reason, RefusalReason::kInvalidRequest);
  EXPECT_EQ(Refused(Standard(), 1, Output(0)).field, "stopping.max_output_tokens");
  EXPECT_EQ(Refused(Standard(), 1, Output(std::numeric_limits<std::int32_t>::min())).field,
            "stopping.max_output_tokens");
}

TEST(CheckIds, RefusesEveryIdOutsideTheVocabularyByField) {
  for (const TokenId bad : {-1, 100, std::numeric_limits<TokenId>::max()}) {
    TokenizedRequest request;
    request.prompt = {1, 99, bad};
    EXPECT_EQ(Standard().CheckIds(request)->field, "token_ids");
    request.prompt = {1, 99};
    EXPECT_FALSE(Standard().CheckIds(request).has_value());
    request.spec.sampling.logit_bias = {{0, 1.0F}, {bad, 1.0F}};
    EXPECT_EQ(Standard().CheckIds(request)->field, "sampling.logit_bias");
    request.spec.sampling.logit_bias.clear();
    request.spec.stopping.stop_token_ids = {bad};
    EXPECT_EQ(Standard().CheckIds(request)->field, "stopping.stop_token_ids");
  }
}

}  // namespace
}  // namespace berth
