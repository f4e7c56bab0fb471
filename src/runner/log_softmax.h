// The logarithms of probabilities of one row of logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "berth/event.h"
#include "berth/units.h"
#include "kernels/cpu/ops.h"

namespace berth {

// Σ values in float64, in one order that depends on their number alone.
double SumInOrder(std::span<const float> values);

// log-softmax(logits), normalised once. NaN counts as minus infinity; several logits at plus infinity share all the
// probability; where no logit is above minus infinity every answer is minus infinity.
class LogSoftmax {
 public:
  // Borrows `logits`, at least one. `scratch` is only used meanwhile.
  LogSoftmax(const cpu::OpsKernels& ops, std::span<const float> logits, std::vector<float>* scratch);

  // REQUIRES: token inside the vocabulary.
  float Of(TokenId token) const;

  // The `k` most likely tokens, best first, lower id first on ties, appended to `out`; 0 ≤ k ≤ logits.size().
  void Top(std::int32_t k, std::vector<TopLogprob>* out) const;

 private:
  float LogProbability(float logit) const;

  const cpu::OpsKernels& ops_;
  const std::span<const float> logits_;
  float highest_;
  double log_sum_ = 0.0;  // of the exponentials relative to the highest
};

}  // namespace berth
