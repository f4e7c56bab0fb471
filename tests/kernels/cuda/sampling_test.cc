#include "kernels/cuda/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "emulation/device_array.h"
#include "fakes/special_floats.h"
#include "kernels/cuda/sampling_batch.h"

namespace berth::cuda {
namespace {

using test::kInf;
using test::kNan;

using emulation::DeviceArray;

RowCase Greedy(std::vector<float> logits) {
  RowCase row;
  row.logits = std::move(logits);
  row.spec.temperature = 0.0F;
  return row;
}

void ExpectSameLogprob(float actual, float expected) {
  if (std::isinf(expected)) {
    EXPECT_EQ(actual, expected);
  } else {
    EXPECT_NEAR(actual, expected, 2e-6 + 2e-7 * std::abs(expected));
  }
}

void ExpectSameLogprobs(const RowCase& row, const RowResult& result, const RowResult& expected) {
  if (row.target == kNoToken && row.top_logprobs < 0) return;
  ExpectSameLogprob(result.logprob, expected.logprob);
  ASSERT_EQ(result.top.size(), expected.top.size());
  for (std::size_t i = 0; i < result.top.size(); ++i) {
    EXPECT_EQ(result.top[i].token_id, expected.top[i].token_id) << i;
    ExpectSameLogprob(result.top[i].logprob, expected.top[i].logprob);
  }
}

void ExpectAsOnCpu(const std::vector<RowCase>& rows) {
  const std::vector<RowResult> results = Batch(rows).Run();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE("row " + std::to_string(i));
    const RowResult expected = OnCpu(rows[i]);
    EXPECT_EQ(results[i].token, expected.token);
    ExpectSameLogprobs(rows[i], results[i], expected);
  }
}

class Sampling : public ::testing::Test {
 protected:
  void SetUp() override { BERTH_REQUIRE_DEVICE(); }
};

TEST_F(Sampling, LongRowsAreSearchedInTheSameOrder) {
  std::vector<RowCase> rows(6);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].logits = RandomLogits(20001, static_cast<unsigned>(i));
    rows[i].spec.seed = i;
  }
  rows[1].spec.top_p = 0.9F;
  rows[2].spec.top_k = 50;
  rows[2].spec.top_p = 0.8F;
  rows[2].top_logprobs = 20;
  // More tokens in a bin than the list holds, twice as many top ones, and ties for all ids to break.
  rows[3].logits.assign(20001, 1.5F);
  rows[3].spec.top_p = 0.99F;
  rows[3].top_logprobs = 9000;
  rows[4].spec.temperature = 40.0F;
  rows[4].top_logprobs = 20001;
  rows[5].spec.frequency_penalty = 1.0F;
  rows[5].spec.repetition_penalty = 1.1F;
  rows[5].top_logprobs = 0;
  for (int i = 0; i < 9000; ++i) rows[5].history.push_back(i * 7 % 20001);
  ExpectAsOnCpu(rows);
}

TEST_F(Sampling, GreedyTakesTheFirstOfTheHighest) {
  ExpectAsOnCpu({Greedy({1, 5, 3, 5, 5, 2}), Greedy({kNan, -kInf, -3, -0.0F, 0.0F, -1}),
                 Greedy({kNan, 1, kInf, 3, kInf, 0}), Greedy({-5, -4, -3, -2, -1, -0.5F})});
}

TEST_F(Sampling, WithoutALogitAboveMinusInfinityTheLowestIdThatIsNotBannedIsTaken) {
  RowCase nothing = Greedy({kNan, -kInf, kNan, -kInf, -kInf});
  nothing.top_logprobs = 5;
  RowCase some_banned = nothing;
  some_banned.banned = {0, 1, 3};
  RowCase all_banned = nothing;
  all_banned.banned = {0, 1, 2, 3, 4};
  RowCase all_banned_with_logits = Greedy({1, 2, 3, 2, 1});
  all_banned_with_logits.banned = {0, 1, 2, 3, 4};
  RowCase drawn = nothing;
  drawn.spec.temperature = 1.0F;
  ExpectAsOnCpu({nothing, some_banned, all_banned, all_banned_with_logits, drawn});
  const std::vector<RowResult> results = Batch({nothing, some_banned, all_banned_with_logits}).Run();
  EXPECT_EQ(results[0].token, 0);
  EXPECT_EQ(results[1].token, 2);
  EXPECT_EQ(results[2].token, 2);
}

TEST_F(Sampling, TokensAtPlusInfinityShareAllTheProbability) {
  std::vector<RowCase> rows(40);
  std::set<TokenId> drawn;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].logits = {3, kInf, kNan, kInf, 100, -kInf, 0};
    rows[i].spec.seed = i;
    rows[i].top_logprobs = 7;
  }
  ExpectAsOnCpu(rows);
  for (const RowResult& result : Batch(rows).Run()) drawn.insert(result.token);
  EXPECT_EQ(drawn, (std::set<TokenId>{1, 3}));
}

TEST_F(Sampling, ASeedAChoiceAndAPositionNameTheDraw) {
  std::vector<RowCase> rows(64);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].logits = RandomLogits(256, 5, 1.0F);
    rows[i].spec.seed = 0x123456789abcdef0 + i / 8;
    rows[i].choice_index = static_cast<std::int32_t>(i / 4 % 2);
    rows[i].history.assign(i / 2 % 2, 0);
  }
  ExpectAsOnCpu(rows);
  const std::vector<RowResult> results = Batch(rows).Run();
  std::set<TokenId> distinct;
  for (std::size_t i = 0; i < rows.size(); i += 2) {
    EXPECT_EQ(results[i].token, results[i + 1].token);
    distinct.insert(results[i].token);
  }
  EXPECT_GT(distinct.size(), 10u);
}

TEST_F(Sampling, AtOneTokenNothingIsLeftToChance) {
  std::vector<RowCase> rows;
  for (unsigned seed = 0; seed < 10; ++seed) {
    RowCase row;
    row.logits = RandomLogits(100, 7, 0.1F);
    row.spec.seed = seed;
    rows.push_back(row);
    rows.back().spec.top_k = 1;
    rows.push_back(row);
    rows.back().spec.top_p = std::numeric_limits<float>::denorm_min();
    rows.push_back(row);
    rows.back().spec.min_p = 1.0F;
  }
  const std::vector<float>& logits = rows[0].logits;
  const auto best = static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  for (const RowResult& result : Batch(rows).Run()) EXPECT_EQ(result.token, best);
}

TEST_F(Sampling, ATargetsLogProbabilityIsToldAndNothingDrawn) {
  RowCase row;
  row.logits = RandomLogits(300, 8);
  row.target = 123;
  RowCase with_top = row;
  with_top.top_logprobs = 300;
  ExpectAsOnCpu({row, with_top});
}

TEST_F(Sampling, LogProbabilitiesAreOfTheLogitsAsTheyWere) {
  // The highest token is changed by each kind of adjustment, and drawn all the same.
  RowCase biased = Greedy({1, 9, 3, 4});
  biased.top_logprobs = 2;
  biased.spec.logit_bias = {{1, 5.0F}};
  RowCase penalised = Greedy({1, 9, 3, 4});
  penalised.top_logprobs = 2;
  penalised.spec.repetition_penalty = 1.25F;
  penalised.history = {2, 1, 1};
  RowCase carried = penalised;
  carried.history = {2, 1};
  carried.carries_last = true;
  RowCase banned = Greedy({1, 9, 3, 4});
  banned.banned = {1};
  banned.top_logprobs = 0;
  ExpectAsOnCpu({biased, penalised, carried, banned});
}

TEST_F(Sampling, ACarriedTokenIsTheHistorysLast) {
  for (const std::int32_t prompt_tokens : {0, 2, 3}) {
    RowCase row = Greedy({5, 4.9F, 4.8F, 4.7F});
    row.history = {0, 0, 1};
    row.prompt_tokens = prompt_tokens;
    row.spec.frequency_penalty = 0.15F;
    row.spec.repetition_penalty = 1.01F;
    RowCase carried = row;
    carried.carries_last = true;
    const std::vector<RowResult> results = Batch({row, carried}).Run();
    EXPECT_EQ(results[0].token, OnCpu(row).token);
    EXPECT_EQ(results[1].token, results[0].token);
  }
}

TEST_F(Sampling, CarriedTokensGoToTheirPlaces) {
  const DeviceArray<std::int32_t> index(std::vector<std::int32_t>{1, 4, 6});
  const DeviceArray<std::int32_t> row(std::vector<std::int32_t>{2, 0, 2});
  const DeviceArray<std::int32_t> drawn(std::vector<std::int32_t>{70, 71, 72});
  const DeviceArray<std::int32_t> ids(std::vector<std::int32_t>{10, 11, 12, 13, 14, 15, 16, 17});
  ASSERT_EQ(LaunchCarryTokens({.token_index = index.data(),
                               .logit_row = row.data(),
                               .drawn = drawn.data(),
                               .token_ids = ids.data(),
                               .num_tokens = 3},
                              nullptr),
            cudaSuccess);
  EXPECT_EQ(ids.Read(), (std::vector<std::int32_t>{10, 72, 12, 13, 70, 15, 72, 17}));
}

TEST_F(Sampling, VocabulariesBeyondTheLimitAreRefused) {
  SamplingParams params{};
  params.num_rows = 1;
  for (const std::int32_t vocab : {0, kMaxSamplingVocab + 1}) {
    params.vocab_size = vocab;
    EXPECT_EQ(LaunchSampling(params, nullptr), cudaErrorInvalidValue);
  }
  params.num_rows = 0;
  params.vocab_size = 8;
  EXPECT_EQ(LaunchSampling(params, nullptr), cudaSuccess);
  EXPECT_EQ(LaunchCarryTokens({}, nullptr), cudaSuccess);
}

}  // namespace
}  // namespace berth::cuda
