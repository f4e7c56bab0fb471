// Logits to a token, as SamplingSpec says. A pure function of its input: the random numbers come from (seed, choice
// index, position) through Philox4x32-10, so a token does not depend on what else is in the batch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "berth/event.h"
#include "berth/step.h"

namespace berth {

// The counter-based generator Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).
std::array<std::uint32_t, 4> Philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

// A uniform number in [0, 1) with 32 random bits, a function of its arguments alone: the first word of Philox4x32 with
// key = seed and counter = (position, choice index, 0), low words first.
double CounterUniform(std::uint64_t seed, std::int32_t choice_index, std::int64_t position);

// Keeps scratch memory between calls; one per thread.
class Sampler {
 public:
  // `logits` has the vocabulary's size (≥ 1) and is not changed. Always returns a token. NaN counts as minus infinity;
  // tokens at plus infinity share all the probability. A banned token is never drawn while another exists; where every
  // other token is at minus infinity, the lowest id that is not banned is returned.
  // Tokens are ordered by logit, highest first, lower id first on ties: top_k keeps the first k, top_p the shortest
  // beginning whose probability reaches p, min_p those at least min_p times as likely as the first; the draw walks the
  // cumulative probability in that order.
  // REQUIRES: input.spec within the ranges that request.h gives; its ids, history and banned inside the vocabulary.
  TokenId Sample(std::span<const float> logits, const SamplingInput& input);

 private:
  struct Candidate {
    float logit;
    TokenId id;
    double weight;  // probability relative to the most likely candidate's
  };

  static bool Better(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  }
  void ApplyBias(const SamplingSpec& spec);
  void ApplyPenalties(const SamplingInput& input);
  // Fills candidates_ with the tokens above minus infinity, by id.
  void CollectCandidates();
  // Drops all but the `k` best, keeping the order by id.
  void KeepBest(std::size_t k);
  // Fills in the weights, drops those that are zero; returns their sum.
  double Weigh(float temperature);
  // Moves the `count` best candidates to the front, in order.
  void SortFront(std::size_t count);
  TokenId Draw(const SamplingSpec& spec, double uniform);

  std::vector<float> logits_;
  std::vector<std::int32_t> seen_;  // by token; all zero between calls
  std::vector<Candidate> candidates_;
  std::vector<Candidate> selection_;
  std::size_t sorted_ = 0;  // how many of candidates_ are in order
};

// log-softmax(logits)[token], accumulated in float64 in one fixed order. NaN counts as minus infinity; several logits
// at plus infinity share all the probability; where no logit is above minus infinity the answer is minus infinity.
float LogProbability(std::span<const float> logits, TokenId token);

// The `k` most likely tokens, best first, lower id first on ties, appended to `out`; 0 ≤ k ≤ logits.size().
void TopLogProbabilities(std::span<const float> logits, std::int32_t k, std::vector<TopLogprob>* out);

}  // namespace berth
