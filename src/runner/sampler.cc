#include "runner/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace berth {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::size_t kFirstSort = 64;

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

// The index of the highest logit, lowest on ties; kNoToken where none is above minus infinity.
TokenId HighestLogit(std::span<const float> logits) {
  TokenId best = kNoToken;
  float highest = -kInfinity;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > highest) {
      highest = logits[i];
      best = static_cast<TokenId>(i);
    }
  }
  return best;
}

// What turns a logit into a log-probability: log Σ exp(logit - highest) beside the highest logit.
struct Normalizer {
  float highest = -kInfinity;
  double log_sum = 0.0;

  float operator()(float logit) const {
    if (!(logit > -kInfinity)) return -kInfinity;
    if (highest == kInfinity) return logit == kInfinity ? static_cast<float>(-log_sum) : -kInfinity;
    return static_cast<float>((static_cast<double>(logit) - highest) - log_sum);
  }
};

Normalizer Normalize(std::span<const float> logits) {
  Normalizer result;
  const TokenId best = HighestLogit(logits);
  if (best == kNoToken) return result;
  result.highest = logits[static_cast<std::size_t>(best)];
  double sum = 0.0;
  for (const float logit : logits) {
    if (logit == result.highest) {
      sum += 1.0;
    } else if (logit > -kInfinity) {
      sum += std::exp(static_cast<double>(logit) - result.highest);
    }
  }
  result.log_sum = std::log(sum);
  return result;
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
  const SamplingSpec& spec = *input.spec;
  logits_.assign(logits.begin(), logits.end());
  ApplyBias(spec);
  ApplyPenalties(input);
  std::span<const TokenId> banned = input.banned;
  if (!InVocabulary(LowestNotBanned(banned), logits.size())) banned = {};  // all of them: then none
  for (const TokenId id : banned) {
    BERTH_CHECK(InVocabulary(id, logits_.size()));
    logits_[static_cast<std::size_t>(id)] = -kInfinity;
  }

  if (spec.temperature <= 0.0F) {
    const TokenId best = HighestLogit(logits_);
    return best != kNoToken ? best : LowestNotBanned(banned);
  }
  CollectCandidates();
  if (candidates_.empty()) return LowestNotBanned(banned);
  if (spec.top_k > 0) KeepBest(static_cast<std::size_t>(spec.top_k));
  const auto position = static_cast<std::int64_t>(input.history.size());
  return Draw(spec, CounterUniform(spec.seed, input.choice_index, position));
}

void Sampler::ApplyBias(const SamplingSpec& spec) {
  for (const auto& [id, bias] : spec.logit_bias) {
    BERTH_CHECK(InVocabulary(id, logits_.size()));
    logits_[static_cast<std::size_t>(id)] += bias;
  }
}

void Sampler::ApplyPenalties(const SamplingInput& input) {
  const SamplingSpec& spec = *input.spec;
  if (spec.repetition_penalty == 1.0F && spec.presence_penalty == 0.0F && spec.frequency_penalty == 0.0F) return;

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

void Sampler::CollectCandidates() {
  candidates_.clear();
  for (std::size_t i = 0; i < logits_.size(); ++i) {
    if (logits_[i] > -kInfinity) candidates_.push_back({logits_[i], static_cast<TokenId>(i), 0.0});
  }
}

void Sampler::KeepBest(std::size_t k) {
  if (k >= candidates_.size()) return;
  selection_ = candidates_;
  const auto last_kept = selection_.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(selection_.begin(), last_kept, selection_.end(), Better);
  std::erase_if(candidates_, [worst = *last_kept](const Candidate& c) { return Better(worst, c); });
}

double Sampler::Weigh(float temperature) {
  float highest = -kInfinity;
  for (const Candidate& c : candidates_) highest = std::max(highest, c.logit);
  double total = 0.0;
  for (Candidate& c : candidates_) {
    if (c.logit == highest) {
      c.weight =
          1.0;  // also where both are plus infinity, or the temperature so small that 0/t would be all that is left
    } else {
      c.weight = std::exp((static_cast<double>(c.logit) - highest) / static_cast<double>(temperature));
    }
    total += c.weight;
  }
  std::erase_if(candidates_, [](const Candidate& c) { return !(c.weight > 0.0); });
  return total;
}

void Sampler::SortFront(std::size_t count) {
  if (count <= sorted_) return;
  const std::size_t end = std::min(candidates_.size(), std::max({count, kFirstSort, 4 * sorted_}));
  const auto at = [this](std::size_t i) { return candidates_.begin() + static_cast<std::ptrdiff_t>(i); };
  if (end < candidates_.size()) std::nth_element(at(sorted_), at(end), candidates_.end(), Better);
  std::sort(at(sorted_), at(end), Better);
  sorted_ = end;
}

TokenId Sampler::Draw(const SamplingSpec& spec, double uniform) {
  double mass = Weigh(spec.temperature);
  std::size_t kept = candidates_.size();
  sorted_ = 0;
  if (spec.top_p < 1.0F || spec.min_p > 0.0F) {
    const double enough = spec.top_p < 1.0F ? static_cast<double>(spec.top_p) * mass : kInfinity;
    mass = 0.0;
    for (kept = 0; kept < candidates_.size() && mass < enough; ++kept) {
      SortFront(kept + 1);
      if (candidates_[kept].weight < static_cast<double>(spec.min_p)) break;
      mass += candidates_[kept].weight;
    }
  }
  const double target = uniform * mass;
  double cumulative = 0.0;
  for (std::size_t i = 0; i + 1 < kept; ++i) {
    SortFront(i + 1);
    cumulative += candidates_[i].weight;
    if (cumulative > target) return candidates_[i].id;
  }
  SortFront(kept);
  return candidates_[kept - 1].id;
}

float LogProbability(std::span<const float> logits, TokenId token) {
  BERTH_CHECK(InVocabulary(token, logits.size()));
  return Normalize(logits)(logits[static_cast<std::size_t>(token)]);
}

void TopLogProbabilities(std::span<const float> logits, std::int32_t k, std::vector<TopLogprob>* out) {
  BERTH_CHECK(k >= 0 && static_cast<std::size_t>(k) <= logits.size());
  if (k == 0) return;
  // A heap of the k best so far, the worst of them on top; `logprob` holds the logit until the end.
  const auto better = [](const TopLogprob& a, const TopLogprob& b) {
    return a.logprob != b.logprob ? a.logprob > b.logprob : a.token_id < b.token_id;
  };
  const auto first = static_cast<std::ptrdiff_t>(out->size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const TopLogprob entry{static_cast<TokenId>(i), logits[i] > -kInfinity ? logits[i] : -kInfinity};
    if (i >= static_cast<std::size_t>(k)) {
      if (!better(entry, (*out)[static_cast<std::size_t>(first)])) continue;
      std::pop_heap(out->begin() + first, out->end(), better);
      out->back() = entry;
    } else {
      out->push_back(entry);
    }
    std::push_heap(out->begin() + first, out->end(), better);
  }
  std::sort_heap(out->begin() + first, out->end(), better);
  const Normalizer log_probability = Normalize(logits);
  for (auto it = out->begin() + first; it != out->end(); ++it) it->logprob = log_probability(it->logprob);
}

}  // namespace berth
