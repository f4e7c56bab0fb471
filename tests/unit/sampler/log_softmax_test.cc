#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "fakes/special_floats.h"
#include "kernels/cpu/cpu_level.h"
#include "runner/log_softmax.h"

namespace berth {
namespace {

using test::kInf;
using test::kNan;

LogSoftmax Of(const std::vector<float>& logits) {
  std::vector<float> scratch;
  return {cpu::GetOpsKernels(cpu::DetectCpuLevel()), logits, &scratch};
}

float LogProbability(const std::vector<float>& logits, TokenId token) { return Of(logits).Of(token); }

std::vector<TopLogprob> Top(const std::vector<float>& logits, std::int32_t k) {
  std::vector<TopLogprob> out;
  Of(logits).Top(k, &out);
  return out;
}

TEST(LogSoftmax, IsTheLogarithmOfTheProbability) {
  const std::vector<float> logits = {std::log(1.0F), std::log(2.0F), std::log(5.0F)};
  EXPECT_FLOAT_EQ(LogProbability(logits, 0), std::log(0.125F));
  EXPECT_FLOAT_EQ(LogProbability(logits, 1), std::log(0.25F));
  EXPECT_FLOAT_EQ(LogProbability(logits, 2), std::log(0.625F));
}

TEST(LogSoftmax, DoesNotOverflowAtTheEdgesOfFloat) {
  EXPECT_FLOAT_EQ(LogProbability(std::vector<float>{3e38F, 3e38F}, 0), std::log(0.5F));
  EXPECT_FLOAT_EQ(LogProbability(std::vector<float>{-3e38F, -3e38F}, 1), std::log(0.5F));
  EXPECT_EQ(LogProbability(std::vector<float>{0.0F, 3e38F}, 1), 0.0F);
}

TEST(LogSoftmax, SumsToOneOverAVocabularyWithoutLosingTheSmallTerms) {
  // A million tokens 16 below the best: float32 sums would lose them.
  std::vector<float> logits(1'000'001, -16.0F);
  logits[0] = 0.0F;
  const double rest = 1'000'000.0 * std::exp(-16.0);
  EXPECT_NEAR(LogProbability(logits, 0), -std::log1p(rest), 1e-7);
}

TEST(LogSoftmax, NanAndInfinitiesAsDocumented) {
  const std::vector<float> with_nan = {kNan, 1.0F, -kInf};
  EXPECT_EQ(LogProbability(with_nan, 0), -kInf);
  EXPECT_EQ(LogProbability(with_nan, 1), 0.0F);
  EXPECT_EQ(LogProbability(with_nan, 2), -kInf);
  const std::vector<float> two_infinite = {kInf, 1.0F, kInf};
  EXPECT_FLOAT_EQ(LogProbability(two_infinite, 0), std::log(0.5F));
  EXPECT_EQ(LogProbability(two_infinite, 1), -kInf);
  EXPECT_EQ(LogProbability(std::vector<float>{-kInf, kNan}, 0), -kInf);
}

TEST(LogSoftmaxTop, IsTheBestFirstAndTheLowestIdFirstOnTies) {
  const std::vector<TopLogprob> top = Top({1.0F, 3.0F, 2.0F, 3.0F, kNan}, 3);
  ASSERT_EQ(top.size(), 3U);
  EXPECT_EQ(top[0].token_id, 1);
  EXPECT_EQ(top[1].token_id, 3);
  EXPECT_EQ(top[2].token_id, 2);
}

TEST(LogSoftmaxTop, AgreesWithSingleTokensBitForBitAndWithAFullSort) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> logits(1 + random() % 400);
    for (float& logit : logits) logit = static_cast<float>(random() % 50) * 0.25F;
    std::vector<TokenId> order;
    for (std::size_t i = 0; i < logits.size(); ++i) order.push_back(static_cast<TokenId>(i));
    std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
      return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    const auto k = static_cast<std::int32_t>(random() % (logits.size() + 1));
    const std::vector<TopLogprob> top = Top(logits, k);
    ASSERT_EQ(top.size(), static_cast<std::size_t>(k));
    for (std::size_t i = 0; i < top.size(); ++i) {
      ASSERT_EQ(top[i].token_id, order[i]);
      ASSERT_EQ(top[i].logprob, LogProbability(logits, top[i].token_id));
    }
  }
}

TEST(LogSoftmaxTop, AppendsBehindWhatIsThere) {
  std::vector<TopLogprob> out = {{77, -1.0F}};
  const std::vector<float> logits = {0.0F, 1.0F, 2.0F};
  Of(logits).Top(2, &out);
  Of(logits).Top(0, &out);
  ASSERT_EQ(out.size(), 3U);
  EXPECT_EQ(out[0].token_id, 77);
  EXPECT_EQ(out[0].logprob, -1.0F);
  EXPECT_EQ(out[1].token_id, 2);
  EXPECT_EQ(out[2].token_id, 1);
}

TEST(LogSoftmaxTop, FillsUpWithImpossibleTokensByIdWhereTooFewArePossible) {
  const std::vector<TopLogprob> top = Top({kNan, 1.0F, -kInf}, 3);
  EXPECT_EQ(top[0].token_id, 1);
  EXPECT_EQ(top[1].token_id, 0);
  EXPECT_EQ(top[1].logprob, -kInf);
  EXPECT_EQ(top[2].token_id, 2);
  EXPECT_EQ(top[2].logprob, -kInf);
}

}  // namespace
}  // namespace berth
