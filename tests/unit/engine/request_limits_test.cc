#include "engine/request_limits.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <variant>

namespace berth {
namespace {

constexpr RequestLimits kLimits = {
    .vocab_size = 100, .max_context_tokens = 64, .pool = {.num_blocks = 10, .block_tokens = 4}};

StoppingSpec Output(std::int32_t tokens, bool is_default = false) {
  StoppingSpec stopping;
  stopping.max_output_tokens = tokens;
  stopping.max_output_tokens_is_default = is_default;
  return stopping;
}

KvDemand Demand(std::int64_t prompt_tokens, const StoppingSpec& stopping) {
  return std::get<KvDemand>(kLimits.EstimateDemand(prompt_tokens, stopping));
}

Refusal Refused(std::int64_t prompt_tokens, const StoppingSpec& stopping) {
  return std::get<Refusal>(kLimits.EstimateDemand(prompt_tokens, stopping));
}

TEST(EstimateDemand, TellsTheWorstCaseInBlocks) {
  const KvDemand demand = Demand(10, Output(7));
  EXPECT_EQ(demand.prompt_tokens, 10);
  EXPECT_EQ(demand.max_output_tokens, 7);
  EXPECT_EQ(demand.worst_blocks, 4);
  EXPECT_EQ(Demand(40, Output(1)).worst_blocks, 10) << "the whole pool";
}

TEST(EstimateDemand, CutsADefaultToTheContextAndRefusesAnAskedOne) {
  constexpr RequestLimits kRoomy = {
      .vocab_size = 100, .max_context_tokens = 64, .pool = {.num_blocks = 100, .block_tokens = 4}};
  EXPECT_EQ(std::get<KvDemand>(kRoomy.EstimateDemand(60, Output(256, true))).max_output_tokens, 4);
  EXPECT_EQ(std::get<KvDemand>(kRoomy.EstimateDemand(60, Output(4))).max_output_tokens, 4);
  const auto refusal = std::get<Refusal>(kRoomy.EstimateDemand(60, Output(5)));
  EXPECT_EQ(refusal.reason, RefusalReason::kRequestTooLarge);
  EXPECT_EQ(refusal.limit_name, "context_tokens");
  EXPECT_EQ(refusal.limit, 64);
  EXPECT_EQ(refusal.asked, 65);
}

TEST(EstimateDemand, RefusesAPromptThatLeavesNoRoomForOutputEvenByDefault) {
  for (const std::int64_t prompt_tokens :
       {std::int64_t{64}, std::int64_t{65}, std::numeric_limits<std::int64_t>::max() - 1}) {
    const Refusal refusal = Refused(prompt_tokens, Output(256, true));
    EXPECT_EQ(refusal.limit_name, "context_tokens");
    EXPECT_EQ(refusal.asked, prompt_tokens + 1);
  }
}

TEST(EstimateDemand, RefusesWhatTheEmptyPoolCannotHold) {
  const Refusal refusal = Refused(40, Output(2));
  EXPECT_EQ(refusal.reason, RefusalReason::kRequestTooLarge);
  EXPECT_EQ(refusal.limit_name, "kv_blocks");
  EXPECT_EQ(refusal.limit, 10);
  EXPECT_EQ(refusal.asked, 11);
}

TEST(EstimateDemand, RefusesNothing) {
  EXPECT_EQ(Refused(0, Output(1)).reason, RefusalReason::kInvalidRequest);
  EXPECT_EQ(Refused(-5, Output(1)).reason, RefusalReason::kInvalidRequest);
  EXPECT_EQ(Refused(1, Output(0)).field, "stopping.max_output_tokens");
  EXPECT_EQ(Refused(1, Output(std::numeric_limits<std::int32_t>::min())).field, "stopping.max_output_tokens");
}

TEST(CheckRequest, RefusesEveryIdOutsideTheVocabularyByField) {
  for (const TokenId bad : {-1, 100, std::numeric_limits<TokenId>::max()}) {
    TokenizedRequest request;
    request.prompt = {1, 99, bad};
    EXPECT_EQ(kLimits.Check(request)->field, "token_ids");
    request.prompt = {1, 99};
    EXPECT_FALSE(kLimits.Check(request).has_value());
    request.spec.sampling.logit_bias = {{0, 1.0F}, {bad, 1.0F}};
    EXPECT_EQ(kLimits.Check(request)->field, "sampling.logit_bias");
    request.spec.sampling.logit_bias.clear();
    request.spec.stopping.stop_token_ids = {bad};
    EXPECT_EQ(kLimits.Check(request)->field, "stopping.stop_token_ids");
  }
}

TEST(CheckRequest, RefusesAnyNumberOfChoicesButOne) {
  for (const std::int32_t n : {0, 2, -1}) {
    TokenizedRequest request;
    request.prompt = {1};
    request.spec.sampling.n = n;
    EXPECT_EQ(kLimits.Check(request)->field, "sampling.n");
  }
}

}  // namespace
}  // namespace berth
