#include "kernels/cuda/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "berth/step.h"
#include "emulation/device_array.h"
#include "runner/log_softmax.h"
#include "runner/sampler.h"

namespace berth::cuda {
namespace {

using emulation::DeviceArray;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Of the property test, for each vocabulary.
#ifdef __SANITIZE_THREAD__
constexpr int kBatches = 4;
#else
constexpr int kBatches = 20;
#endif

// What a row of a step asks for, as the engine has it.
struct RowCase {
  std::vector<float> logits;
  SamplingSpec spec;
  std::vector<TokenId> history;
  std::int32_t prompt_tokens = 0;
  std::vector<TokenId> banned;
  std::int32_t choice_index = 0;
  TokenId target = kNoToken;
  std::int32_t top_logprobs = kNoLogprobs;
  bool carries_last = false;  // the history's last id is in the step's token ids alone

  SamplingInput input() const { return {&spec, choice_index, history, prompt_tokens, banned}; }
};

RowCase Greedy(std::vector<float> logits) {
  RowCase row;
  row.logits = std::move(logits);
  row.spec.temperature = 0.0F;
  return row;
}

struct RowResult {
  TokenId token = kNoToken;
  float logprob = 0.0F;
  std::vector<TopLogprob> top;
};

const cpu::OpsKernels& Ops() { return cpu::GetOpsKernels(cpu::DetectCpuLevel()); }

RowResult OnCpu(const RowCase& row) {
  std::vector<float> scratch;
  const LogSoftmax softmax(Ops(), row.logits, &scratch);
  RowResult result;
  result.token = row.target != kNoToken ? row.target : Sampler(Ops()).Sample(row.logits, row.input());
  result.logprob = softmax.Of(result.token);
  softmax.Top(std::max(row.top_logprobs, 0), &result.top);
  return result;
}

// A list for the device with room behind it that nobody may touch.
template <typename T>
class Guarded {
 public:
  explicit Guarded(std::size_t size) : values_(std::vector<T>(size + kGuards, Guard())) {}
  T* data() const { return values_.data(); }
  std::vector<T> Read() const {
    std::vector<T> values = values_.Read();
    for (std::size_t i = values.size() - kGuards; i < values.size(); ++i) EXPECT_EQ(values[i], Guard());
    values.resize(values.size() - kGuards);
    return values;
  }

 private:
  static constexpr std::size_t kGuards = 8;
  static T Guard() { return static_cast<T>(-77); }
  DeviceArray<T> values_;
};

// All rows in one launch.
class Batch {
 public:
  explicit Batch(const std::vector<RowCase>& rows) {
    for (const RowCase& row : rows) Add(row);
  }

  // adjusted: the logits that the draws were made from.
  std::vector<RowResult> Run(std::vector<float>* adjusted = nullptr) const {
    const DeviceArray<float> logits(logits_);
    const DeviceArray<SamplingRow> rows(rows_);
    const DeviceArray<std::int32_t> ids(ids_);
    const DeviceArray<float> biases(biases_);
    const DeviceArray<std::int32_t> token_ids(token_ids_);
    const Guarded<float> raw(ids_.size());
    const Guarded<std::int32_t> tokens(rows_.size());
    const Guarded<float> logprobs(rows_.size());
    const Guarded<std::int32_t> top_ids(static_cast<std::size_t>(num_top_));
    const Guarded<float> top_logprobs(static_cast<std::size_t>(num_top_));
    EXPECT_EQ(LaunchSampling({.logits = logits.data(),
                              .rows = rows.data(),
                              .ids = ids.data(),
                              .biases = biases.data(),
                              .token_ids = token_ids.data(),
                              .raw_logits = raw.data(),
                              .tokens = tokens.data(),
                              .logprobs = logprobs.data(),
                              .top_ids = top_ids.data(),
                              .top_logprobs = top_logprobs.data(),
                              .num_rows = static_cast<std::int32_t>(rows_.size()),
                              .vocab_size = static_cast<std::int32_t>(logits_.size() / rows_.size())},
                             nullptr),
              cudaSuccess);
    (void)raw.Read();
    if (adjusted != nullptr) *adjusted = logits.Read();
    return Unpack(tokens.Read(), logprobs.Read(), top_ids.Read(), top_logprobs.Read());
  }

 private:
  void Add(const RowCase& row) {
    SamplingRow packed{};
    packed.temperature = row.spec.temperature;
    packed.top_p = row.spec.top_p;
    packed.min_p = row.spec.min_p;
    packed.repetition_penalty = row.spec.repetition_penalty;
    packed.presence_penalty = row.spec.presence_penalty;
    packed.frequency_penalty = row.spec.frequency_penalty;
    packed.top_k = row.spec.top_k;
    packed.choice_index = row.choice_index;
    packed.seed = row.spec.seed;
    packed.position = static_cast<std::int64_t>(row.history.size());
    packed.target = row.target == kNoToken ? -1 : row.target;
    packed.top_logprobs = row.top_logprobs;
    packed.top_begin = num_top_;
    packed.prompt_tokens = row.prompt_tokens;
    packed.last_token = -1;
    std::vector<TokenId> history = row.history;
    if (row.carries_last) {
      packed.last_token = static_cast<std::int32_t>(token_ids_.size());
      token_ids_.push_back(history.back());
      history.pop_back();
    }
    packed.history = AddIds(history);
    packed.banned = AddIds(row.banned);
    packed.bias = {static_cast<std::int32_t>(ids_.size()), static_cast<std::int32_t>(row.spec.logit_bias.size())};
    for (const auto& [id, bias] : row.spec.logit_bias) {
      ids_.push_back(id);
      biases_.push_back(bias);
    }
    num_top_ += std::max(row.top_logprobs, 0);
    logits_.insert(logits_.end(), row.logits.begin(), row.logits.end());
    rows_.push_back(packed);
  }

  SamplingIds AddIds(const std::vector<TokenId>& ids) {
    const SamplingIds part{static_cast<std::int32_t>(ids_.size()), static_cast<std::int32_t>(ids.size())};
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    biases_.resize(ids_.size(), kNan);
    return part;
  }

  std::vector<RowResult> Unpack(const std::vector<std::int32_t>& tokens, const std::vector<float>& logprobs,
                                const std::vector<std::int32_t>& top_ids,
                                const std::vector<float>& top_logprobs) const {
    std::vector<RowResult> results(rows_.size());
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      results[i].token = tokens[i];
      results[i].logprob = logprobs[i];
      for (std::int32_t j = 0; j < rows_[i].top_logprobs; ++j) {
        const auto at = static_cast<std::size_t>(rows_[i].top_begin + j);
        results[i].top.push_back({top_ids[at], top_logprobs[at]});
      }
    }
    return results;
  }

  std::vector<float> logits_;
  std::vector<SamplingRow> rows_;
  std::vector<std::int32_t> ids_ = {0};  // not empty
  std::vector<float> biases_ = {kNan};
  std::vector<std::int32_t> token_ids_ = {0};
  std::int32_t num_top_ = 0;
};

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

std::vector<float> RandomLogits(std::size_t size, unsigned seed, float deviation = 3.0F) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution(0.0F, deviation);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = distribution(generator);
  return logits;
}

class Sampling : public ::testing::Test {
 protected:
  void SetUp() override { BERTH_REQUIRE_DEVICE(); }
};

// ---- Every mix of parameters against berth::Sampler.

class RandomRows {
 public:
  explicit RandomRows(unsigned seed) : generator_(seed) {}

  RowCase Row(std::int32_t vocab) {
    RowCase row;
    row.logits = Logits(vocab);
    row.spec.temperature = Pick({0.0F, 0.3F, 1.0F, 1.0F, 0.7F, 1.7F, 50.0F});
    row.spec.top_k = static_cast<std::int32_t>(Pick({0.0F, 0.0F, 1.0F, 3.0F, 20.0F, 100000.0F}));
    row.spec.top_p = Pick({1.0F, 1.0F, 0.95F, 0.5F, 1e-6F});
    row.spec.min_p = Pick({0.0F, 0.0F, 0.05F, 0.5F, 1.0F});
    row.spec.seed = generator_();
    row.choice_index = Below(4);
    if (Chance(3)) {
      row.spec.repetition_penalty = Pick({1.0F, 1.3F, 0.7F});
      row.spec.presence_penalty = Pick({0.0F, 0.5F, -1.1F});
      row.spec.frequency_penalty = Pick({0.0F, 0.3F, -0.2F});
    }
    AddHistory(vocab, &row);
    if (Chance(4)) {
      for (const TokenId id : Distinct(vocab))
        row.spec.logit_bias.emplace_back(id, Pick({-100.0F, -1.5F, 2.25F, 9.0F}));
    }
    if (Chance(4)) row.banned = Distinct(vocab);
    if (Chance(2)) row.top_logprobs = std::min(vocab, Below(3) * 10 + Below(3));
    if (Chance(12)) row.target = Below(vocab);
    return row;
  }

 private:
  std::int32_t Below(std::int32_t end) {
    return static_cast<std::int32_t>(generator_() % static_cast<std::uint32_t>(end));
  }
  bool Chance(std::int32_t in) { return Below(in) == 0; }
  float Pick(std::initializer_list<float> values) {
    return values.begin()[Below(static_cast<std::int32_t>(values.size()))];
  }

  std::vector<float> Logits(std::int32_t vocab) {
    std::vector<float> logits = RandomLogits(static_cast<std::size_t>(vocab), static_cast<unsigned>(generator_()),
                                             Pick({0.01F, 1.0F, 3.0F, 12.0F}));
    if (Chance(4)) {  // ties
      for (float& logit : logits) logit = std::round(logit);
    }
    if (Chance(4)) {
      for (std::int32_t i = 0; i < vocab / 8; ++i)
        logits[static_cast<std::size_t>(Below(vocab))] = Pick({kNan, -kInf, -0.0F});
    }
    if (Chance(16))
      logits[static_cast<std::size_t>(Below(vocab))] = logits[static_cast<std::size_t>(Below(vocab))] = kInf;
    return logits;
  }

  void AddHistory(std::int32_t vocab, RowCase* row) {
    const std::int32_t range = Chance(2) ? vocab : std::min(vocab, 5);  // many repetitions
    for (std::int32_t i = Below(200); i > 0; --i) row->history.push_back(Below(range));
    row->prompt_tokens = row->history.empty() ? 0 : Below(static_cast<std::int32_t>(row->history.size()));
    row->carries_last = !row->history.empty() && Chance(2);
  }

  std::vector<TokenId> Distinct(std::int32_t vocab) {
    std::set<TokenId> ids;
    for (std::int32_t i = Below(vocab) / 2 + 1; i > 0; --i) ids.insert(Below(vocab));
    return {ids.begin(), ids.end()};
  }

  std::mt19937 generator_;
};

// The tokens that rounding may lead to: the rules in float64, with each border moved by a millionth either way.
std::set<TokenId> AtTheBorders(const std::vector<float>& adjusted, const RowCase& row) {
  std::vector<TokenId> order(adjusted.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](TokenId id) {
    const float value = adjusted[static_cast<std::size_t>(id)];
    return std::isnan(value) ? -kInf : value;
  };
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return logit(a) > logit(b); });
  const auto weight = [&](TokenId id) {
    if (logit(id) == logit(order[0])) return 1.0;
    return std::exp((static_cast<double>(logit(id)) - logit(order[0])) / row.spec.temperature);
  };
  std::size_t kept = order.size();
  if (row.spec.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(row.spec.top_k));
  double all = 0;
  for (std::size_t i = 0; i < kept; ++i) all += weight(order[i]);
  const double uniform = CounterUniform(row.spec.seed, row.choice_index, static_cast<std::int64_t>(row.history.size()));
  std::set<TokenId> tokens;
  for (int variant = 0; variant < 27; ++variant) {
    const auto moved = [&](double border, int by) { return border * (1 + 1e-6 * (variant / by % 3 - 1)); };
    const double enough = row.spec.top_p < 1 ? moved(row.spec.top_p * all, 1) : kInf;
    double mass = 0;
    for (std::size_t i = 0; i < kept && mass < enough && weight(order[i]) >= moved(row.spec.min_p, 3); ++i) {
      mass += weight(order[i]);
    }
    const double target = moved(uniform * mass, 9);
    double cumulative = 0;
    for (std::size_t i = 0; i < kept; ++i) {
      cumulative += weight(order[i]);
      if (cumulative <= target) continue;
      tokens.insert(order[i]);
      break;
    }
  }
  return tokens;
}

// The row's logits when the draw is made.
std::vector<float> Adjusted(const RowCase& row) {
  std::vector<float> logits = row.logits;
  for (const auto& [id, bias] : row.spec.logit_bias) logits[static_cast<std::size_t>(id)] += bias;
  const std::set<TokenId> seen(row.history.begin(), row.history.end());
  for (const TokenId id : seen) {
    float& logit = logits[static_cast<std::size_t>(id)];
    logit = logit > 0 ? logit / row.spec.repetition_penalty : logit * row.spec.repetition_penalty;
    const auto uses = std::count(row.history.begin() + row.prompt_tokens, row.history.end(), id);
    if (uses > 0) logit -= row.spec.presence_penalty;
    if (uses > 0) logit -= row.spec.frequency_penalty * static_cast<float>(uses);
  }
  for (const TokenId id : row.banned) logits[static_cast<std::size_t>(id)] = -kInf;
  return logits;
}

TEST_F(Sampling, EveryMixOfParametersDrawsTheTokenOfTheCpuSampler) {
  int rows_seen = 0;
  int at_a_border = 0;
  for (const std::int32_t vocab : {32, 129, 1000, 4096}) {
    for (int batch = 0; batch < kBatches; ++batch) {
      RandomRows random(static_cast<unsigned>(batch * 10000 + vocab));
      std::vector<RowCase> rows;
      for (int i = 0; i < (vocab < 500 ? 40 : 8); ++i) rows.push_back(random.Row(vocab));
      const std::vector<RowResult> results = Batch(rows).Run();
      for (std::size_t i = 0; i < rows.size(); ++i) {
        SCOPED_TRACE("vocabulary " + std::to_string(vocab) + ", batch " + std::to_string(batch) + ", row " +
                     std::to_string(i));
        RowResult expected = OnCpu(rows[i]);
        if (results[i].token != expected.token) {
          ASSERT_TRUE(AtTheBorders(Adjusted(rows[i]), rows[i]).contains(results[i].token))
              << results[i].token << " is not " << expected.token;
          ++at_a_border;
          continue;
        }
        ExpectSameLogprobs(rows[i], results[i], expected);
        ++rows_seen;
      }
    }
  }
  RecordProperty("rows_equal", rows_seen);
  RecordProperty("rows_at_a_border", at_a_border);
  EXPECT_LE(at_a_border, 3) << "of " << rows_seen;
}

TEST_F(Sampling, BiasPenaltiesAndBansGiveTheSameBits) {
  constexpr std::size_t kVocab = 129;
  RandomRows random(99);
  std::vector<RowCase> rows;
  while (rows.size() < 20) {
    RowCase row = random.Row(kVocab);
    if (row.target == kNoToken && row.banned.size() < kVocab) rows.push_back(std::move(row));
  }
  std::vector<float> adjusted;
  (void)Batch(rows).Run(&adjusted);
  for (std::size_t i = 0; i < adjusted.size(); ++i) {
    const float expected = Adjusted(rows[i / kVocab])[i % kVocab];
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(adjusted[i])) << i;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(adjusted[i]), std::bit_cast<std::uint32_t>(expected)) << i;
    }
  }
}

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

// ---- The rules one by one.

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
