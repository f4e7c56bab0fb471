// How long a step will take, learned from the steps that ran.
#pragma once

#include <array>
#include <cstdint>

#include "berth/clock.h"

namespace berth {

// What a step's time depends on.
struct StepWork {
  std::int64_t prefill_tokens = 0;
  std::int64_t decode_sequences = 0;
  std::int64_t decode_kv_tokens = 0;     // tokens that decoding sequences attend to
  std::int64_t prefill_kv_products = 0;  // Σ chunk · context, over prefill chunks
  std::int64_t swapped_blocks = 0;       // copied between the pool and the host's memory
};

// time = a + b·prefill_tokens + c·decode_sequences + d·decode_kv_tokens + e·prefill_kv_products +
// f·swapped_blocks, every coefficient ≥ 0.
//
// Least squares over an exponentially fading window, kept as its normal equations and solved by coordinate descent with
// the coefficients clipped at zero (Franc, Hlaváč, Navara: "Sequential coordinate-wise algorithm for the non-negative
// least squares problem", 2005), so a step costs a few hundred multiplications and memory does not grow. A prior stands
// in for the steps that have not run yet and fades as they do.
class StepCostModel {
 public:
  static constexpr std::size_t kTerms = 6;
  using Coefficients = std::array<double, kTerms>;  // seconds per unit

  // A step of a small model on a CPU: 1 ms + 0.2 ms a prefill token + 1 ms a decoding sequence +
  // 0.1 ms a block copied.
  static constexpr Coefficients kPrior = {1e-3, 2e-4, 1e-3, 1e-7, 1e-9, 1e-4};

  explicit StepCostModel(const Coefficients& prior = kPrior);

  Duration Predict(const StepWork& work) const;
  // What a part of a step costs, with `part_of_constant` of what every step costs, in seconds.
  double Seconds(const StepWork& work, double part_of_constant) const;
  // A time above 5 times the prediction counts as 5 times: one hiccup must not teach a trend.
  void Observe(const StepWork& work, Duration measured);

  // The most prefill tokens, all at `context` and at most `limit`, that keep a step with this decode work within
  // `target`.
  std::int64_t PrefillTokensWithin(Duration target, const StepWork& decode, std::int64_t context,
                                   std::int64_t limit) const;

  const Coefficients& coefficients() const { return coefficients_; }

 private:
  static Coefficients Terms(const StepWork& work);
  void Solve();

  Coefficients coefficients_;
  std::array<Coefficients, kTerms> normal_{};  // Σ w·x·xᵀ, in scaled units
  Coefficients moment_{};                      // Σ w·x·time
};

}  // namespace berth
