#include "scheduler/step_cost_model.h"

#include <algorithm>

namespace berth {
namespace {

// Units that bring the terms of a typical step near 1, so that the equations stay well conditioned.
constexpr StepCostModel::Coefficients kUnits = {1.0, 100.0, 10.0, 1e4, 1e5, 10.0};
constexpr double kFade = 0.995;        // per step: the window is about 200 steps
constexpr double kPriorWeight = 0.05;  // of the prior, in steps of typical size
constexpr double kClip = 5.0;
constexpr int kSweeps = 8;

}  // namespace

StepCostModel::StepCostModel(const Coefficients& prior) : coefficients_(prior) {
  for (std::size_t i = 0; i < kTerms; ++i) {
    normal_[i][i] = kPriorWeight;
    moment_[i] = kPriorWeight * prior[i] * kUnits[i];
  }
}

StepCostModel::Coefficients StepCostModel::Terms(const StepWork& work) {
  return {1.0,
          static_cast<double>(work.prefill_tokens),
          static_cast<double>(work.decode_sequences),
          static_cast<double>(work.decode_kv_tokens),
          static_cast<double>(work.prefill_kv_products),
          static_cast<double>(work.swapped_blocks)};
}

double StepCostModel::Seconds(const StepWork& work, double part_of_constant) const {
  const Coefficients terms = Terms(work);
  double seconds = coefficients_[0] * part_of_constant;
  for (std::size_t i = 1; i < kTerms; ++i) seconds += coefficients_[i] * terms[i];
  return seconds;
}

Duration StepCostModel::Predict(const StepWork& work) const {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::min(Seconds(work, 1.0), 1e6)));
}

void StepCostModel::Observe(const StepWork& work, Duration measured) {
  const double predicted = ToSeconds(Predict(work));
  const double seconds = std::clamp(ToSeconds(measured), 0.0, kClip * std::max(predicted, 1e-6));
  Coefficients scaled = Terms(work);
  for (std::size_t i = 0; i < kTerms; ++i) scaled[i] /= kUnits[i];
  for (std::size_t i = 0; i < kTerms; ++i) {
    for (std::size_t j = 0; j < kTerms; ++j) normal_[i][j] = kFade * normal_[i][j] + scaled[i] * scaled[j];
    moment_[i] = kFade * moment_[i] + scaled[i] * seconds;
  }
  Solve();
}

void StepCostModel::Solve() {
  Coefficients x;
  for (std::size_t i = 0; i < kTerms; ++i) x[i] = coefficients_[i] * kUnits[i];
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (std::size_t i = 0; i < kTerms; ++i) {
      // The prior fades with the window; a term that no step has had keeps its coefficient.
      if (normal_[i][i] < 1e-9) continue;
      double gradient = -moment_[i];
      for (std::size_t j = 0; j < kTerms; ++j) gradient += normal_[i][j] * x[j];
      x[i] = std::max(0.0, x[i] - gradient / normal_[i][i]);
    }
  }
  for (std::size_t i = 0; i < kTerms; ++i) coefficients_[i] = x[i] / kUnits[i];
}

std::int64_t StepCostModel::PrefillTokensWithin(Duration target, const StepWork& decode, std::int64_t context,
                                                std::int64_t limit) const {
  const double left = ToSeconds(target - Predict(decode));
  if (left <= 0.0) return 0;
  const double per_token = coefficients_[1] + coefficients_[4] * static_cast<double>(context);
  if (per_token * static_cast<double>(limit) <= left) return limit;
  return static_cast<std::int64_t>(left / per_token);
}

}  // namespace berth
