#include "scheduler/step_cost_model.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

Duration Micros(double us) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::micro>(us));
}

TEST(StepCostModel, StartsFromItsPrior) {
  const StepCostModel model({0.001, 0.002, 0.003, 0.0, 0.0});
  EXPECT_EQ(model.Predict({2, 1, 0, 0}), Micros(1000 + 4000 + 3000));
}

TEST(StepCostModel, LearnsTheMachineItRunsOn) {
  StepCostModel model;
  std::uint64_t state = 1;
  const auto draw = [&](std::uint64_t n) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::int64_t>((state >> 33) % n);
  };
  const auto truth = [](const StepWork& w) {
    return Micros(500.0 + 80.0 * static_cast<double>(w.prefill_tokens) +
                  300.0 * static_cast<double>(w.decode_sequences) + 0.05 * static_cast<double>(w.decode_kv_tokens) +
                  0.001 * static_cast<double>(w.prefill_kv_products));
  };
  for (int i = 0; i < 1500; ++i) {
    StepWork work{draw(4) == 0 ? draw(256) : 0, draw(32), 0, 0};
    work.decode_kv_tokens = work.decode_sequences * (1 + draw(2000));
    work.prefill_kv_products = work.prefill_tokens * (1 + draw(1000));
    model.Observe(work, truth(work));
  }
  for (const StepWork work : {StepWork{0, 16, 16000, 0}, StepWork{128, 8, 4000, 64000}, StepWork{64, 0, 0, 4096}}) {
    EXPECT_NEAR(ToSeconds(model.Predict(work)) / ToSeconds(truth(work)), 1.0, 0.03);
  }
}

TEST(StepCostModel, CoefficientsNeverGoBelowZero) {
  StepCostModel model;
  // Times that fall with the work would ask for negative coefficients.
  for (std::int64_t i = 0; i < 500; ++i) model.Observe({i % 100, i % 7, i, i}, Micros(10000.0 - 90.0 * (i % 100)));
  for (const double c : model.coefficients()) EXPECT_GE(c, 0.0);
  EXPECT_GE(model.Predict({1000, 10, 1000, 1000}), Duration(0));
}

TEST(StepCostModel, OneHiccupTeachesNoTrend) {
  StepCostModel model({0.001, 0.0, 0.001, 0.0, 0.0});
  for (int i = 0; i < 300; ++i) model.Observe({0, 4, 400, 0}, Micros(5000));
  model.Observe({0, 4, 400, 0}, std::chrono::seconds(60));
  EXPECT_LT(model.Predict({0, 4, 400, 0}), Micros(5000 * 1.1));
}

TEST(StepCostModel, ChunksFillATargetAndNoMore) {
  const StepCostModel model({0.001, 0.0001, 0.001, 0.0, 0.0});
  const StepWork decode{0, 4, 0, 0};
  EXPECT_EQ(model.PrefillTokensWithin(Micros(15000.5), decode, 0, 4096), 100);
  EXPECT_EQ(model.PrefillTokensWithin(Micros(15000), decode, 0, 50), 50);
  EXPECT_EQ(model.PrefillTokensWithin(Micros(4000), decode, 0, 50), 0);
}

}  // namespace
}  // namespace berth
