// Logits to a token, as SamplingSpec says. A pure function of its input: the random numbers come from (seed, choice
// index, position) through Philox4x32-10, so a token does not depend on what else is in the batch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "berth/step.h"
#include "kernels/cpu/ops.h"

namespace berth {

// The counter-based generator Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).
std::array<std::uint32_t, 4> Philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

// A uniform number in [0, 1) with 32 random bits, a function of its arguments alone: the first word of Philox4x32 with
// key = seed and counter = (position, choice index, 0), low words first.
double CounterUniform(std::uint64_t seed, std::int32_t choice_index, std::int64_t position);

// Keeps scratch memory between calls; one per thread.
class Sampler {
 public:
  explicit Sampler(const cpu::OpsKernels& ops) : ops_(ops) {}

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
    float weight;  // probability relative to the most likely token's
  };

  static bool Better(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  }
  // The logits with bias, penalties and bans: themselves where there are none, else a copy.
  std::span<const float> Adjusted(std::span<const float> logits, const SamplingInput& input,
                                  std::span<const TokenId> banned);
  void ApplyPenalties(const SamplingInput& input);
  // The first token whose logit is `highest`, which is one of them.
  TokenId FirstAt(float highest, std::span<const float> logits) const;
  TokenId Draw(std::span<const float> logits, float highest, const SamplingSpec& spec, double uniform);
  // Draws from the tokens of at least this weight; kNoToken where that takes less likely ones too.
  TokenId DrawAmong(std::span<const float> logits, float least_weight, double total, const SamplingSpec& spec,
                    double uniform);
  // Fills candidates_ with the tokens of at least this weight, which is above 0, by id.
  void Collect(std::span<const float> logits, float least_weight);
  // Drops all but the `k` best, keeping the order by id.
  void KeepBest(std::size_t k);
  // Moves the `count` best candidates to the front, in order.
  void SortFront(std::size_t count);

  const cpu::OpsKernels& ops_;
  std::vector<float> logits_;
  std::vector<float> weights_;      // by token
  std::vector<std::int32_t> seen_;  // by token; all zero between calls
  std::vector<Candidate> candidates_;
  std::vector<Candidate> selection_;
  std::size_t sorted_ = 0;  // how many of candidates_ are in order
};

}  // namespace berth
