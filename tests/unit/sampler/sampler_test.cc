#include "runner/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "fakes/special_floats.h"

namespace berth {
namespace {

using test::kInf;
using test::kNan;

struct Case {
  SamplingSpec spec;
  std::vector<TokenId> history;
  std::int32_t prompt_tokens = 0;
  std::vector<TokenId> banned;
  std::int32_t choice_index = 0;

  SamplingInput input() const { return {&spec, choice_index, history, prompt_tokens, banned}; }
};

Sampler MakeSampler() { return Sampler(cpu::GetOpsKernels(cpu::DetectCpuLevel())); }

TokenId Sample(const std::vector<float>& logits, const Case& c) { return MakeSampler().Sample(logits, c.input()); }

Case Greedy() {
  Case c;
  c.spec.temperature = 0.0F;
  return c;
}

// The tokens that come out over many seeds.
std::set<TokenId> Support(const std::vector<float>& logits, Case c, int seeds = 3000) {
  Sampler sampler = MakeSampler();
  std::set<TokenId> drawn;
  for (int seed = 0; seed < seeds; ++seed) {
    c.spec.seed = static_cast<std::uint64_t>(seed);
    drawn.insert(sampler.Sample(logits, c.input()));
  }
  return drawn;
}

// The rules spelled out the slow way: full sort, whole arrays, nothing shared with the sampler but the random number.
TokenId NaiveSample(std::vector<float> logits, const Case& c) {
  const SamplingSpec& spec = c.spec;
  for (float& logit : logits) {
    if (std::isnan(logit)) logit = -kInf;
  }
  for (const auto& [id, bias] : spec.logit_bias) logits[static_cast<std::size_t>(id)] += bias;
  std::map<TokenId, int> output;
  for (std::size_t i = static_cast<std::size_t>(c.prompt_tokens); i < c.history.size(); ++i) ++output[c.history[i]];
  for (const TokenId id : std::set<TokenId>(c.history.begin(), c.history.end())) {
    float& logit = logits[static_cast<std::size_t>(id)];
    logit = logit > 0 ? logit / spec.repetition_penalty : logit * spec.repetition_penalty;
  }
  for (const auto& [id, count] : output) {
    float& logit = logits[static_cast<std::size_t>(id)];
    logit -= spec.presence_penalty;
    logit -= spec.frequency_penalty * static_cast<float>(count);
  }
  for (const TokenId id : c.banned) logits[static_cast<std::size_t>(id)] = -kInf;

  std::vector<TokenId> order;
  for (std::size_t i = 0; i < logits.size(); ++i) order.push_back(static_cast<TokenId>(i));
  const auto logit_of = [&](TokenId id) { return logits[static_cast<std::size_t>(id)]; };
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return logit_of(a) > logit_of(b); });
  if (logit_of(order[0]) == -kInf) {
    return *std::ranges::find_if(order, [&](TokenId id) { return !std::ranges::binary_search(c.banned, id); });
  }
  if (spec.temperature == 0.0F) return order[0];
  if (spec.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(spec.top_k)));
  std::vector<double> weights;
  double total = 0.0;
  for (const TokenId id : order) {
    weights.push_back(std::exp((static_cast<double>(logit_of(id)) - logit_of(order[0])) / spec.temperature));
    total += weights.back();
  }
  std::size_t kept = order.size();
  if (spec.top_p < 1.0F) {
    double mass = 0.0;
    for (kept = 0; mass < static_cast<double>(spec.top_p) * total;) mass += weights[kept++];
  }
  while (kept > 1 && weights[kept - 1] < static_cast<double>(spec.min_p)) --kept;
  double mass = 0.0;
  for (std::size_t i = 0; i < kept; ++i) mass += weights[i];
  const double target = CounterUniform(spec.seed, c.choice_index, static_cast<std::int64_t>(c.history.size())) * mass;
  double cumulative = 0.0;
  for (std::size_t i = 0; i < kept; ++i) {
    cumulative += weights[i];
    if (cumulative > target) return order[i];
  }
  return order[kept - 1];
}

TEST(Sampler, GreedyTakesTheHighestLogitAndTheLowestIdOnTies) {
  EXPECT_EQ(Sample({0.5F, 3.0F, -1.0F, 2.9F}, Greedy()), 1);
  EXPECT_EQ(Sample({0.5F, 3.0F, -1.0F, 3.0F}, Greedy()), 1);
  EXPECT_EQ(Sample({-7.0F}, Greedy()), 0);
}

TEST(Sampler, AgreesWithTheRulesSpelledOutSlowly) {
  std::mt19937 random(20240229);
  std::normal_distribution<float> logit(0.0F, 3.0F);
  const auto pick = [&](auto... values) {
    const std::vector<double> list = {static_cast<double>(values)...};
    return list[random() % list.size()];
  };
  Sampler sampler = MakeSampler();
  for (int round = 0; round < 3000; ++round) {
    const std::size_t vocab = 1 + random() % 300;
    std::vector<float> logits(vocab);
    for (float& value : logits) value = logit(random);
    if (round % 3 == 0) {
      for (float& value : logits) value = std::round(value);  // many ties
    }
    if (round % 7 == 0) logits[random() % vocab] = kNan;
    Case c;
    c.spec.temperature = static_cast<float>(pick(0.0, 0.1, 0.7, 1.0, 1.5));
    c.spec.top_k = static_cast<std::int32_t>(pick(0, 0, 1, 5, 100, 1000));
    c.spec.top_p = static_cast<float>(pick(1.0, 1.0, 0.1, 0.5, 0.95));
    c.spec.min_p = static_cast<float>(pick(0.0, 0.0, 0.05, 0.5, 1.0));
    c.spec.repetition_penalty = static_cast<float>(pick(1.0, 1.3, 0.8));
    c.spec.presence_penalty = static_cast<float>(pick(0.0, 1.5, -1.0));
    c.spec.frequency_penalty = static_cast<float>(pick(0.0, 0.5, -0.5));
    c.spec.seed = random();
    c.choice_index = static_cast<std::int32_t>(random() % 4);
    for (std::size_t i = random() % 40; i > 0; --i) c.history.push_back(static_cast<TokenId>(random() % vocab));
    c.prompt_tokens = static_cast<std::int32_t>(c.history.size() / 2);
    if (vocab > 10) {
      c.banned = {2, 5};
      c.spec.logit_bias = {{1, 4.0F}, {7, -3.0F}};
    }
    ASSERT_EQ(sampler.Sample(logits, c.input()), NaiveSample(logits, c)) << "round " << round;
  }
}

TEST(Sampler, AgreesWithTheRulesOnALargeFlatVocabulary) {
  std::mt19937 random(7);
  std::vector<float> logits(5000);
  for (float& value : logits) value = static_cast<float>(random() % 1000) * 1e-3F;
  Sampler sampler = MakeSampler();
  for (const float top_p : {1.0F, 0.999F, 0.3F}) {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      Case c;
      c.spec.seed = seed;
      c.spec.top_p = top_p;
      ASSERT_EQ(sampler.Sample(logits, c.input()), NaiveSample(logits, c)) << top_p << " " << seed;
    }
  }
}

TEST(Sampler, DrawsEachTokenAsOftenAsItsProbabilitySays) {
  const std::vector<float> logits = {0.0F, 1.0F, -1.0F, 2.0F, 0.5F, -3.0F, 1.0F, 0.25F};
  for (const float temperature : {0.5F, 1.0F, 2.0F}) {
    Case c;
    c.spec.temperature = temperature;
    std::vector<double> expected;
    double total = 0.0;
    for (const float logit : logits) total += std::exp(static_cast<double>(logit) / temperature);
    constexpr int kDraws = 100'000;
    for (const float logit : logits)
      expected.push_back(kDraws * std::exp(static_cast<double>(logit) / temperature) / total);
    Sampler sampler = MakeSampler();
    std::vector<int> drawn(logits.size(), 0);
    for (int i = 0; i < kDraws; ++i) {
      c.spec.seed = static_cast<std::uint64_t>(i);
      ++drawn[static_cast<std::size_t>(sampler.Sample(logits, c.input()))];
    }
    double chi_square = 0.0;
    for (std::size_t i = 0; i < logits.size(); ++i) chi_square += std::pow(drawn[i] - expected[i], 2) / expected[i];
    EXPECT_LT(chi_square, 24.3) << "temperature " << temperature;  // 99.9 % quantile at 7 degrees of freedom
  }
}

TEST(Sampler, TheSameSeedChoiceAndPositionGiveTheSameTokenWhateverWasSampledBefore) {
  std::vector<float> logits(500);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>((i * 37) % 101) * 0.05F;
  Case c;
  c.spec.seed = 99;
  c.spec.top_p = 0.9F;
  c.choice_index = 2;
  c.history = {5, 6, 7};
  const TokenId alone = Sample(logits, c);

  Sampler used = MakeSampler();
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Case other;
    other.spec.seed = seed;
    other.spec.repetition_penalty = 1.2F;
    other.history = {1, 2, 3, 4};
    used.Sample(std::span<const float>(logits).first(5 + seed), other.input());
    ASSERT_EQ(used.Sample(logits, c.input()), alone);
  }
  // History of the same length but other tokens: same random number, and no penalty asks for the tokens.
  c.history = {9, 9, 9};
  EXPECT_EQ(Sample(logits, c), alone);
}

TEST(Sampler, OtherChoicesAndPositionsDrawOtherNumbers) {
  const std::vector<float> flat(1000, 0.0F);
  Case c;
  std::set<TokenId> by_choice;
  for (c.choice_index = 0; c.choice_index < 20; ++c.choice_index) by_choice.insert(Sample(flat, c));
  EXPECT_GT(by_choice.size(), 10U);
  c.choice_index = 0;
  std::set<TokenId> by_position;
  for (int i = 0; i < 20; ++i) {
    c.history.push_back(0);
    by_position.insert(Sample(flat, c));
  }
  EXPECT_GT(by_position.size(), 10U);
}

TEST(Sampler, TinyTemperaturesAreGreedyAndNeverOverflow) {
  const std::vector<float> logits = {-3e38F, 3e38F, 2.9e38F, 0.0F};
  for (const float temperature : {1e-45F, 1e-38F, 1e-6F}) {
    Case c;
    c.spec.temperature = temperature;
    EXPECT_EQ(Support(logits, c, 100), (std::set<TokenId>{1})) << temperature;
  }
}

TEST(Sampler, HugeTemperaturesAreUniform) {
  Case c;
  c.spec.temperature = 1e30F;
  EXPECT_EQ(Support({-50.0F, 0.0F, 50.0F}, c), (std::set<TokenId>{0, 1, 2}));
}

TEST(Sampler, TopKKeepsTheKBestAndTheLowestIdsOfATie) {
  Case c;
  c.spec.top_k = 3;
  EXPECT_EQ(Support({1.0F, 0.5F, 1.0F, 2.0F, 1.0F}, c), (std::set<TokenId>{0, 2, 3}));
  c.spec.top_k = 1;
  EXPECT_EQ(Support({1.0F, 2.0F, 2.0F}, c), (std::set<TokenId>{1}));
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesItsMass) {
  const std::vector<float> logits = {std::log(0.1F), std::log(0.5F), std::log(0.15F), std::log(0.25F)};
  Case c;
  c.spec.top_p = 0.6F;  // 0.5 is not enough, 0.5 + 0.25 is
  EXPECT_EQ(Support(logits, c), (std::set<TokenId>{1, 3}));
  c.spec.top_p = 0.8F;
  EXPECT_EQ(Support(logits, c), (std::set<TokenId>{1, 2, 3}));
  c.spec.top_p = 1e-30F;  // never nothing
  EXPECT_EQ(Support(logits, c), (std::set<TokenId>{1}));
}

TEST(Sampler, TopPCountsTheMassThatTopKAndTemperatureLeft) {
  const std::vector<float> logits = {std::log(0.4F), std::log(0.3F), std::log(0.2F), std::log(0.1F)};
  Case c;
  c.spec.top_k = 2;
  c.spec.top_p = 0.55F;  // 0.4 / 0.7 = 0.57 after top-k; alone it would take two
  EXPECT_EQ(Support(logits, c), (std::set<TokenId>{0}));
  c.spec.top_k = 0;
  c.spec.temperature = 0.2F;  // 0.4^5 / Σ = 0.79
  EXPECT_EQ(Support(logits, c), (std::set<TokenId>{0}));
}

TEST(Sampler, MinPIsRelativeToTheMostLikelyToken) {
  const std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.12F), std::log(0.08F)};
  Case c;
  c.spec.min_p = 0.2F;  // 0.5 · 0.2 = 0.1
  EXPECT_EQ(Support(logits, c), (std::set<TokenId>{0, 1, 2}));
  c.spec.min_p = 1.0F;
  EXPECT_EQ(Support(logits, c), (std::set<TokenId>{0}));
}

TEST(Sampler, LogitBiasIsAddedBeforeAnythingElse) {
  Case c = Greedy();
  c.spec.logit_bias = {{2, 5.0F}};
  EXPECT_EQ(Sample({1.0F, 2.0F, -1.0F}, c), 2);
  // −1 + 5 = 4 is positive, so a repetition penalty of 4 divides it: 1 < 2.
  c.spec.repetition_penalty = 4.0F;
  c.history = {2};
  EXPECT_EQ(Sample({1.0F, 2.0F, -1.0F}, c), 1);
}

TEST(Sampler, RepetitionPenaltyDividesPositiveAndMultipliesNegativeLogitsOfPromptAndOutputOnce) {
  Case c = Greedy();
  c.spec.repetition_penalty = 2.0F;
  c.prompt_tokens = 1;
  c.history = {0, 0, 0};
  EXPECT_EQ(Sample({3.0F, 1.4F}, c), 0);  // 1.5: once, however often it was used
  EXPECT_EQ(Sample({3.0F, 1.6F}, c), 1);
  EXPECT_EQ(Sample({-1.0F, -1.9F}, c), 1);  // −2
  c.history = {0};                          // the prompt's token counts as well
  EXPECT_EQ(Sample({3.0F, 1.6F}, c), 1);
}

TEST(Sampler, PresenceAndFrequencyPenaltiesCountTheOutputAlone) {
  Case c = Greedy();
  c.prompt_tokens = 2;
  c.history = {0, 0};
  c.spec.presence_penalty = 2.0F;
  c.spec.frequency_penalty = 2.0F;
  EXPECT_EQ(Sample({1.0F, 0.5F}, c), 0);  // in the prompt only: no penalty
  c.spec.frequency_penalty = 0.0F;
  c.history = {0, 0, 0, 0, 0};
  EXPECT_EQ(Sample({3.0F, 0.9F}, c), 0);  // presence once: 1.0
  EXPECT_EQ(Sample({3.0F, 1.1F}, c), 1);
  c.spec.presence_penalty = 0.0F;
  c.spec.frequency_penalty = 0.5F;
  EXPECT_EQ(Sample({3.0F, 1.4F}, c), 0);  // three times 0.5: 1.5
  EXPECT_EQ(Sample({3.0F, 1.6F}, c), 1);
}

TEST(Sampler, BannedTokensAreNeverDrawnWhileAnotherExists) {
  Case greedy = Greedy();
  greedy.banned = {1, 3};
  EXPECT_EQ(Sample({0.0F, 9.0F, 1.0F, 8.0F}, greedy), 2);
  Case c;
  c.banned = {1, 3};
  c.spec.logit_bias = {{1, 100.0F}};
  EXPECT_EQ(Support({0.0F, kInf, 1.0F, 8.0F}, c), (std::set<TokenId>{0, 2}));
}

TEST(Sampler, WhereEverythingIsBannedTheBanIsIgnored) {
  for (Case c : {Greedy(), Case{}}) {
    c.banned = {0, 1};
    c.spec.top_k = 1;
    EXPECT_EQ(Sample({0.0F, 5.0F}, c), 1);
  }
}

TEST(Sampler, WhereNothingIsAboveMinusInfinityTheLowestIdThatIsNotBannedComesOut) {
  for (Case c : {Greedy(), Case{}}) {
    EXPECT_EQ(Sample({-kInf, -kInf, kNan}, c), 0);
    c.banned = {0, 1};
    EXPECT_EQ(Sample({-kInf, 3.0F, -kInf, kNan}, c), 2);
    c.banned = {1};
    EXPECT_EQ(Sample({kNan, 3.0F, -kInf}, c), 0);
  }
}

TEST(Sampler, NanCountsAsMinusInfinity) {
  EXPECT_EQ(Sample({kNan, -5.0F, kNan}, Greedy()), 1);
  EXPECT_EQ(Support({kNan, -5.0F, kNan, -5.0F}, Case{}), (std::set<TokenId>{1, 3}));
  Case c = Greedy();
  c.spec.logit_bias = {{0, 50.0F}};
  EXPECT_EQ(Sample({kNan, -5.0F}, c), 1);
}

TEST(Sampler, TokensAtPlusInfinityShareAllTheProbability) {
  EXPECT_EQ(Sample({1.0F, kInf, kInf}, Greedy()), 1);
  EXPECT_EQ(Support({1.0F, kInf, 3e38F, kInf}, Case{}), (std::set<TokenId>{1, 3}));
  Case c;
  c.spec.top_p = 0.4F;
  EXPECT_EQ(Support({1.0F, kInf, 3e38F, kInf}, c), (std::set<TokenId>{1}));
}

TEST(SamplerDeathTest, AnIdOutsideTheVocabularyIsABugOfTheCaller) {
  Case c = Greedy();
  c.banned = {3};
  EXPECT_DEATH(Sample({0.0F, 1.0F}, c), "InVocabulary");
  c.banned = {};
  c.spec.logit_bias = {{-1, 1.0F}};
  EXPECT_DEATH(Sample({0.0F, 1.0F}, c), "InVocabulary");
  c.spec.logit_bias = {};
  c.spec.presence_penalty = 1.0F;
  c.history = {2};
  EXPECT_DEATH(Sample({0.0F, 1.0F}, c), "InVocabulary");
}

}  // namespace
}  // namespace berth
