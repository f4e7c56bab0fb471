#include "kernels/cpu/activation_residual.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "aligned_bytes.h"
#include "kernels/cpu/matmul.h"
#include "level_cases.h"
#include "weight_data.h"

namespace berth::cpu {
namespace {

TEST(ActivationResidual, OnlyIntegerKindsRound) {
  for (const PackedKind kind : {PackedKind::kPanelF32, PackedKind::kPanelF16, PackedKind::kPanelBF16}) {
    EXPECT_FALSE(RoundsActivations(kind));
  }
  for (const PackedKind kind :
       {PackedKind::kPanelU4, PackedKind::kPanelU4Symmetric, PackedKind::kPanelU8, PackedKind::kPanelU8x16}) {
    EXPECT_TRUE(RoundsActivations(kind));
  }
}

TEST(ActivationResidual, ASecondTermTakesAwayNearlyAllOfTheRounding) {
  constexpr int kOutputs = 48;
  constexpr int kInputs = 512;
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0.0F, 2.0F);
  for (const WeightFormat format : test::kAllFormats) {
    if (!test::IsQuantised(format)) continue;
    const test::StoredWeights weights = test::RandomWeights(format, kOutputs, kInputs, test::Scales::kTypical, rng);
    const PackedKind kind = ChoosePackedKind(format, false);
    test::AlignedBytes packed(PackedBytes(kind, kOutputs, kInputs));
    PackPanels(format, weights.bytes.data(), kind, kOutputs, kInputs, 0, NumPanels(kOutputs), packed.data());
    std::vector<float> x(kInputs);
    for (float& value : x) value = normal(rng);
    x[77] = 60.0F;  // an outlier, which makes its block's rounding coarse

    for (const CpuLevel level : test::Levels()) {
      const MatMulKernels& kernels = GetMatMulKernels(level);
      const std::size_t row_bytes = ActivationBytes(kind, kInputs);
      test::AlignedBytes rows(2 * row_bytes);
      kernels.prepare_row(kind, x.data(), kInputs, rows.data());
      std::vector<float> residual(kInputs);
      ActivationResidual(x.data(), kInputs, rows.data(), residual.data());
      kernels.prepare_row(kind, residual.data(), kInputs, rows.data() + row_bytes);
      std::vector<float> y(2 * kOutputs);
      kernels.matmul({kind, kOutputs, kInputs, packed.data()}, rows.data(), 2, y.data(), kOutputs, 0,
                     NumPanels(kOutputs));

      double one_term = 0;
      double two_terms = 0;
      for (int n = 0; n < kOutputs; ++n) {
        double exact = 0;
        for (int k = 0; k < kInputs; ++k) {
          exact += weights.values[static_cast<std::size_t>(n * kInputs + k)] * x[static_cast<std::size_t>(k)];
        }
        const auto at = static_cast<std::size_t>(n);
        one_term += std::abs(y[at] - exact);
        two_terms += std::abs(y[at] + y[kOutputs + at] - exact);
      }
      EXPECT_LT(two_terms, one_term / 50) << test::FormatName(format) << " " << CpuLevelName(level);
    }
  }
}

}  // namespace
}  // namespace berth::cpu
