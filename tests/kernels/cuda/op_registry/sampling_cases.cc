// Sampling: every mix of parameters over random rows.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <iostream>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "fakes/special_floats.h"
#include "kernels/cuda/bf16_data.h"
#include "kernels/cuda/op_registry/op_case.h"
#include "kernels/cuda/sampling_batch.h"

namespace berth::cuda {
namespace {

using test::kInf;
using test::kNan;

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

// The rules spelled out in float64.
class RowOracle {
 public:
  explicit RowOracle(const RowCase& row) : row_(row), adjusted_(row.logits), raw_order_(Ordered(row.logits)) {
    TakeLogSum();
    if (row.target != kNoToken) {
      tokens_ = {row.target};
      return;
    }
    Adjust();
    order_ = Ordered(adjusted_);
    if (row.spec.temperature <= 0 || Number(adjusted_[Size(order_[0])]) == -kInf) {
      const auto allowed = [&](TokenId id) { return !std::binary_search(row.banned.begin(), row.banned.end(), id); };
      tokens_ = {*std::find_if(order_.begin(), order_.end(), allowed)};
      return;
    }
    TakeWeights();
    tokens_ = {Draw(1, 1, 1)};
    constexpr double kMoved[] = {1 - 1e-6, 1, 1 + 1e-6};
    for (const double top_p : kMoved) {
      for (const double min_p : kMoved) {
        for (const double draw : kMoved) tokens_.push_back(Draw(top_p, min_p, draw));
      }
    }
  }

  // As the draw sees them.
  const std::vector<float>& adjusted() const { return adjusted_; }
  TokenId token() const { return tokens_[0]; }
  // Where rounding may lead to: with each border moved by a millionth either way.
  bool MayBe(TokenId token) const { return std::find(tokens_.begin(), tokens_.end(), token) != tokens_.end(); }
  // By the logits as they were.
  const std::vector<TokenId>& raw_order() const { return raw_order_; }
  double Logprob(TokenId id) const {
    const double logit = Number(row_.logits[Size(id)]);
    return logit == -kInf ? logit : FromHighest(logit) - log_sum_;
  }

 private:
  static double Number(float logit) { return std::isnan(logit) ? -kInf : logit; }

  static std::vector<TokenId> Ordered(const std::vector<float>& logits) {
    std::vector<TokenId> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](TokenId a, TokenId b) { return Number(logits[Size(a)]) > Number(logits[Size(b)]); });
    return order;
  }

  double FromHighest(double logit) const {
    const double highest = Number(row_.logits[Size(raw_order_[0])]);
    return logit == highest ? 0 : logit - highest;
  }

  void TakeLogSum() {
    double sum = 0;
    for (const float logit : row_.logits) sum += std::exp(FromHighest(Number(logit)));
    log_sum_ = std::log(sum);
  }

  // In float32, each operation rounded as the CPU backend rounds it.
  void Adjust() {
    for (const auto& [id, bias] : row_.spec.logit_bias) adjusted_[Size(id)] += bias;
    for (const TokenId id : std::set<TokenId>(row_.history.begin(), row_.history.end())) {
      float& logit = adjusted_[Size(id)];
      logit = logit > 0 ? logit / row_.spec.repetition_penalty : logit * row_.spec.repetition_penalty;
      const auto uses = std::count(row_.history.begin() + row_.prompt_tokens, row_.history.end(), id);
      if (uses == 0) continue;
      logit -= row_.spec.presence_penalty;
      const float frequency = row_.spec.frequency_penalty * static_cast<float>(uses);
      logit -= frequency;
    }
    for (const TokenId id : row_.banned) adjusted_[Size(id)] = -kInf;
  }

  void TakeWeights() {
    const double highest = Number(adjusted_[Size(order_[0])]);
    for (const TokenId id : order_) {
      const double logit = Number(adjusted_[Size(id)]);
      weights_.push_back(logit == highest ? 1 : std::exp((logit - highest) / row_.spec.temperature));
    }
    if (row_.spec.top_k > 0) weights_.resize(std::min(weights_.size(), Size(row_.spec.top_k)));
  }

  // With the borders multiplied.
  TokenId Draw(double top_p_by, double min_p_by, double uniform_by) const {
    const double all = std::accumulate(weights_.begin(), weights_.end(), 0.0);
    const double enough = row_.spec.top_p < 1 ? row_.spec.top_p * all * top_p_by : kInf;
    double mass = 0;
    std::size_t kept = 0;
    for (; kept < weights_.size() && mass < enough; ++kept) {
      if (kept > 0 && weights_[kept] < row_.spec.min_p * min_p_by) break;
      mass += weights_[kept];
    }
    const double uniform =
        CounterUniform(row_.spec.seed, row_.choice_index, static_cast<std::int64_t>(row_.history.size()));
    const double target = uniform * mass * uniform_by;
    double cumulative = 0;
    for (std::size_t i = 0; i < kept; ++i) {
      cumulative += weights_[i];
      if (cumulative > target) return order_[i];
    }
    return order_[kept - 1];
  }

  const RowCase& row_;
  std::vector<float> adjusted_;
  std::vector<TokenId> raw_order_;
  double log_sum_ = 0;
  std::vector<TokenId> order_;   // of the adjusted logits
  std::vector<double> weights_;  // in that order, as many as top-k leaves
  std::vector<TokenId> tokens_;
};

class SamplingCase : public OpCase {
 public:
  SamplingCase(std::int32_t vocab, int rows) {
    RandomRows random(static_cast<unsigned>(vocab));
    for (int i = 0; i < rows; ++i) rows_.push_back(random.Row(vocab));
    for (const RowCase& row : rows_) oracles_.emplace_back(row);
  }

  std::vector<Expected> Oracle() const override {
    Expected tokens("tokens");
    Expected logprobs("logprobs");
    Expected top_ids("top ids");
    Expected top_logprobs("top logprobs");
    Expected adjusted("adjusted logits");
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const RowOracle& oracle = oracles_[i];
      tokens.Add(oracle.token(), 0, 0);
      AddLogprob(WantsLogprob(rows_[i]) ? oracle.Logprob(oracle.token()) : std::nan(""), &logprobs);
      for (std::int32_t j = 0; j < rows_[i].top_logprobs; ++j) {
        top_ids.Add(oracle.raw_order()[Size(j)], 0, 0);
        AddLogprob(oracle.Logprob(oracle.raw_order()[Size(j)]), &top_logprobs);
      }
      for (const float logit : oracle.adjusted()) adjusted.Add(logit, 0);
    }
    return {std::move(tokens), std::move(logprobs), std::move(top_ids), std::move(top_logprobs), std::move(adjusted)};
  }

  std::optional<Outputs> OnCpu() const override {
    std::vector<RowResult> results;
    for (const RowCase& row : rows_) {
      results.push_back(cuda::OnCpu(row));
      if (!WantsLogprob(row)) results.back().logprob = kNan;
    }
    return OutputsOf(results, {});
  }

  Outputs OnCuda() const override {
    std::vector<float> adjusted;
    const std::vector<RowResult> results = Batch(rows_).Run(&adjusted);
    return OutputsOf(results, adjusted);
  }

 private:
  static bool WantsLogprob(const RowCase& row) { return row.target != kNoToken || row.top_logprobs >= 0; }

  static void AddLogprob(double value, Expected* expected) {
    const double bound = 2e-6 + 2e-7 * std::abs(value);
    expected->Add(value, bound, bound);
  }

  // A token that rounding at a border may lead to counts as the oracle's, and is told.
  Outputs OutputsOf(const std::vector<RowResult>& results, const std::vector<float>& adjusted) const {
    Outputs outputs(4);
    int at_borders = 0;
    for (std::size_t i = 0; i < results.size(); ++i) {
      const bool at_border = results[i].token != oracles_[i].token() && oracles_[i].MayBe(results[i].token);
      if (at_border) ++at_borders;
      outputs[0].push_back(at_border ? oracles_[i].token() : results[i].token);
      outputs[1].push_back(at_border && WantsLogprob(rows_[i]) ? oracles_[i].Logprob(oracles_[i].token())
                                                               : results[i].logprob);
      for (const TopLogprob& top : results[i].top) {
        outputs[2].push_back(top.token_id);
        outputs[3].push_back(top.logprob);
      }
    }
    if (at_borders > 0) std::cout << at_borders << " of " << results.size() << " rows drew at a border\n";
    outputs.emplace_back(adjusted.begin(), adjusted.end());
    return outputs;
  }

  std::vector<RowCase> rows_;
  std::vector<RowOracle> oracles_;
};

}  // namespace

std::vector<OpEntry> SamplingCases() {
#ifdef __SANITIZE_THREAD__
  constexpr int kShare = 10;
#else
  constexpr int kShare = 1;
#endif
  std::vector<OpEntry> entries;
  for (const auto& [vocab, rows] : {std::pair{32, 400}, {129, 400}, {1000, 120}, {4096, 120}}) {
    entries.push_back(MakeEntry<SamplingCase>(
        "sampling", std::to_string(rows / kShare) + "x" + std::to_string(vocab),
        "tokens exact but 1e-6 at a border, logits exact, logprobs 2e-6 + 2e-7 of the value", vocab, rows / kShare));
  }
  return entries;
}

}  // namespace berth::cuda
