// Logits to a token, as SamplingSpec says. A pure function of its input: the random numbers come from (seed, choice index,
// position) through Philox4x32-10 (Salmon et al., SC'11), so a token does not depend on what else is in the batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "berth/event.h"
#include "berth/step.h"

namespace berth {

// A uniform number in [0, 1) with 32 random bits, a function of its arguments alone.
double CounterUniform(std::uint64_t seed, std::int32_t choice_index, std::int64_t position);

// Keeps scratch memory between calls; one per thread.
class Sampler {
 public:
  // `logits` has the vocabulary's size and is not changed. Returns the drawn token: finite logits always give one, and a
  // banned token is never drawn while another exists. NaN logits count as minus infinity.
  // REQUIRES: input.spec within the ranges that request.h gives; history ids inside the vocabulary.
  TokenId Sample(std::span<const float> logits, const SamplingInput& input);

 private:
  std::vector<float> scratch_;
  std::vector<std::int32_t> counts_;
  std::vector<TokenId> candidates_;
};

// log-softmax(logits)[token], accumulated in float64 in one fixed order.
float LogProbability(std::span<const float> logits, TokenId token);

// The `k` most likely tokens, best first, lower id first on ties, appended to `out`; 0 ≤ k ≤ logits.size().
void TopLogProbabilities(std::span<const float> logits, std::int32_t k, std::vector<TopLogprob>* out);

}  // namespace berth
