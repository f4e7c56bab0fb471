#include "runner/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "runner/log_softmax.h"

namespace berth {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr std::size_t kFirstSort = 64;
constexpr std::size_t kSearched = 1024;  // logits searched together
// Few tokens make up most of the probability: the others are looked at only if the draw goes that far. The last one is
// the least number above 0.
constexpr std::array kLeastWeights = {0x1p-8F, 0x1p-16F, std::numeric_limits<float>::denorm_min()};

bool InVocabulary(TokenId id, std::size_t vocab_size) { return id >= 0 && static_cast<std::size_t>(id) < vocab_size; }

// The lowest id that is not in `banned` (sorted).
TokenId LowestNotBanned(std::span<const TokenId> banned) {
  TokenId id = 0;
  for (const TokenId other : banned) {
    if (other > id) break;
    if (other == id) ++id;
  }
  return id;
}

}  // namespace

std::array<std::uint32_t, 4> Philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

double CounterUniform(std::uint64_t seed, std::int32_t choice_index, std::int64_t position) {
  const auto counter = static_cast<std::uint64_t>(position);
  const auto words = Philox4x32({static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
                                 static_cast<std::uint32_t>(choice_index), 0},
                                {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return static_cast<double>(words[0]) * 0x1p-32;
}

TokenId Sampler::Sample(std::span<const float> logits, const SamplingInput& input) {
  BERTH_CHECK(!logits.empty());
  std::span<const TokenId> banned = input.banned;
  if (!InVocabulary(LowestNotBanned(banned), logits.size())) banned = {};  // all of them: then none
  const std::span<const float> adjusted = Adjusted(logits, input, banned);
  const float highest = ops_.highest(adjusted.data(), static_cast<std::int32_t>(adjusted.size()));
  if (highest == kImpossible) return LowestNotBanned(banned);
  if (input.spec->temperature <= 0.0F) return FirstAt(highest, adjusted);
  const auto position = static_cast<std::int64_t>(input.history.size());
  return Draw(adjusted, highest, *input.spec, CounterUniform(input.spec->seed, input.choice_index, position));
}

TokenId Sampler::FirstAt(float highest, std::span<const float> logits) const {
  std::size_t begin = 0;
  while (ops_.highest(logits.data() + begin, static_cast<std::int32_t>(std::min(kSearched, logits.size() - begin))) !=
         highest) {
    begin += kSearched;
  }
  while (logits[begin] != highest) ++begin;
  return static_cast<TokenId>(begin);
}

std::span<const float> Sampler::Adjusted(std::span<const float> logits, const SamplingInput& input,
                                         std::span<const TokenId> banned) {
  const SamplingSpec& spec = *input.spec;
  const bool penalised =
      spec.repetition_penalty != 1.0F || spec.presence_penalty != 0.0F || spec.frequency_penalty != 0.0F;
  if (spec.logit_bias.empty() && !penalised && banned.empty()) return logits;
  logits_.assign(logits.begin(), logits.end());
  for (const auto& [id, bias] : spec.logit_bias) {
    BERTH_CHECK(InVocabulary(id, logits_.size()));
    logits_[static_cast<std::size_t>(id)] += bias;
  }
  if (penalised) ApplyPenalties(input);
  for (const TokenId id : banned) {
    BERTH_CHECK(InVocabulary(id, logits_.size()));
    logits_[static_cast<std::size_t>(id)] = kImpossible;
  }
  return logits_;
}

void Sampler::ApplyPenalties(const SamplingInput& input) {
  const SamplingSpec& spec = *input.spec;
  // seen_[id]: the lowest bit says that the prompt has it, the rest counts its uses in the output.
  if (seen_.size() < logits_.size()) seen_.resize(logits_.size(), 0);
  for (std::size_t i = 0; i < input.history.size(); ++i) {
    const TokenId id = input.history[i];
    BERTH_CHECK(InVocabulary(id, logits_.size()));
    std::int32_t& seen = seen_[static_cast<std::size_t>(id)];
    seen = i < static_cast<std::size_t>(input.prompt_tokens) ? (seen | 1) : seen + 2;
  }
  for (const TokenId id : input.history) {
    std::int32_t& seen = seen_[static_cast<std::size_t>(id)];
    if (seen == 0) continue;  // done at its first place
    float& logit = logits_[static_cast<std::size_t>(id)];
    logit = logit > 0.0F ? logit / spec.repetition_penalty : logit * spec.repetition_penalty;
    const std::int32_t output_uses = seen >> 1;
    if (output_uses > 0) {
      logit -= spec.presence_penalty;
      logit -= spec.frequency_penalty * static_cast<float>(output_uses);
    }
    seen = 0;
  }
}

TokenId Sampler::Draw(std::span<const float> logits, float highest, const SamplingSpec& spec, double uniform) {
  weights_.resize(logits.size());
  ops_.exp_weights(logits.data(), static_cast<std::int32_t>(logits.size()), highest, spec.temperature, weights_.data());
  const double total = SumInOrder(weights_);
  TokenId token = kNoToken;
  for (const float least_weight : kLeastWeights) {
    token = DrawAmong(logits, least_weight, total, spec, uniform);
    if (token != kNoToken) break;
  }
  return token;
}

TokenId Sampler::DrawAmong(std::span<const float> logits, float least_weight, double total, const SamplingSpec& spec,
                           double uniform) {
  Collect(logits, least_weight);
  double mass = total;
  bool complete = least_weight == kLeastWeights.back() || least_weight <= spec.min_p;
  if (const auto k = static_cast<std::size_t>(spec.top_k); k > 0) {
    if (candidates_.size() < k && least_weight != kLeastWeights.back()) return kNoToken;
    KeepBest(k);
    complete = true;
    mass = 0.0;
    for (const Candidate& c : candidates_) mass += static_cast<double>(c.weight);
  }
  std::size_t kept = candidates_.size();
  if (spec.top_p < 1.0F || spec.min_p > 0.0F) {
    const double enough =
        spec.top_p < 1.0F ? static_cast<double>(spec.top_p) * mass : std::numeric_limits<double>::infinity();
    mass = 0.0;
    for (kept = 0; kept < candidates_.size() && mass < enough; ++kept) {
      SortFront(kept + 1);
      if (candidates_[kept].weight < spec.min_p) break;
      mass += static_cast<double>(candidates_[kept].weight);
    }
    if (kept == candidates_.size() && mass < enough && !complete) return kNoToken;
    complete = true;
  }
  const double target = uniform * mass;
  double cumulative = 0.0;
  for (std::size_t i = 0; i < kept; ++i) {
    SortFront(i + 1);
    cumulative += static_cast<double>(candidates_[i].weight);
    if (cumulative > target) return candidates_[i].id;
  }
  return complete ? candidates_[kept - 1].id : kNoToken;
}

void Sampler::Collect(std::span<const float> logits, float least_weight) {
  candidates_.clear();
  sorted_ = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (weights_[i] >= least_weight) candidates_.push_back({logits[i], static_cast<TokenId>(i), weights_[i]});
  }
}

void Sampler::KeepBest(std::size_t k) {
  if (k >= candidates_.size()) return;
  selection_ = candidates_;
  const auto last_kept = selection_.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(selection_.begin(), last_kept, selection_.end(), Better);
  std::erase_if(candidates_, [worst = *last_kept](const Candidate& c) { return Better(worst, c); });
}

void Sampler::SortFront(std::size_t count) {
  if (count <= sorted_) return;
  const std::size_t end = std::min(candidates_.size(), std::max({count, kFirstSort, 4 * sorted_}));
  const auto at = [this](std::size_t i) { return candidates_.begin() + static_cast<std::ptrdiff_t>(i); };
  if (end < candidates_.size()) std::nth_element(at(sorted_), at(end), candidates_.end(), Better);
  std::sort(at(sorted_), at(end), Better);
  sorted_ = end;
}

}  // namespace berth
