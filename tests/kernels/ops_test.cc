#include "kernels/cpu/ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "fakes/special_floats.h"
#include "kernels/cpu/half.h"
#include "level_cases.h"

namespace berth::cpu {
namespace {

using test::kInf;
using test::kNan;

constexpr float kGuard = 12345.0F;

std::vector<float> Random(int n, unsigned seed, float scale = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> x(static_cast<std::size_t>(n));
  for (float& value : x) value = normal(random);
  return x;
}

TEST(Ops, RmsNormAgreesWithFloat64) {
  for (const CpuLevel level : test::Levels()) {
    for (const int n : {1, 8, 15, 16, 17, 64, 576, 4099}) {
      const std::vector<float> x = Random(n, 1, 3.0F);
      const std::vector<float> weight = Random(n, 2);
      std::vector<float> y(static_cast<std::size_t>(n) + 1, kGuard);
      GetOpsKernels(level).rms_norm(x.data(), weight.data(), 1e-5F, n, y.data());
      double squares = 0;
      for (const float value : x) squares += static_cast<double>(value) * value;
      const double scale = 1.0 / std::sqrt(squares / n + 1e-5);
      for (int i = 0; i < n; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const double expected = x[at] * scale * weight[at];
        EXPECT_NEAR(y[at], expected, 2e-6 * std::abs(expected) + 1e-12) << CpuLevelName(level) << " n " << n;
      }
      EXPECT_EQ(y.back(), kGuard);
    }
  }
}

TEST(Ops, RopeRotatesTheGivenPairsAndLeavesTheRest) {
  constexpr int kHeads = 3;
  constexpr int kHeadDim = 80;
  constexpr int kPairs = 12;
  const std::vector<float> angles = Random(kPairs, 5, 2.0F);
  std::vector<float> cosines;
  std::vector<float> sines;
  for (const float angle : angles) {
    cosines.push_back(std::cos(angle));
    sines.push_back(std::sin(angle));
  }
  for (const CpuLevel level : test::Levels()) {
    for (const bool halves : {false, true}) {
      const std::vector<float> before = Random(kHeads * kHeadDim, 6);
      std::vector<float> x = before;
      const OpsKernels& ops = GetOpsKernels(level);
      (halves ? ops.rope_halves : ops.rope_adjacent)(x.data(), kHeads, kHeadDim, kPairs, cosines.data(), sines.data());
      for (int h = 0; h < kHeads; ++h) {
        std::vector<double> expected(before.begin() + h * kHeadDim, before.begin() + (h + 1) * kHeadDim);
        for (int i = 0; i < kPairs; ++i) {
          const auto a = static_cast<std::size_t>(halves ? i : 2 * i);
          const auto b = static_cast<std::size_t>(halves ? i + kPairs : 2 * i + 1);
          const double u = expected[a];
          const double w = expected[b];
          const double c = cosines[static_cast<std::size_t>(i)];
          const double s = sines[static_cast<std::size_t>(i)];
          expected[a] = u * c - w * s;
          expected[b] = u * s + w * c;
        }
        for (int d = 0; d < kHeadDim; ++d) {
          EXPECT_NEAR(x[static_cast<std::size_t>(h * kHeadDim + d)], expected[static_cast<std::size_t>(d)], 1e-6);
        }
      }
    }
  }
}

TEST(Ops, SwiGluAgreesWithFloat64AndSaturatesWithoutNaN) {
  for (const CpuLevel level : test::Levels()) {
    std::vector<float> gate = Random(1003, 8, 8.0F);
    const std::vector<float> extremes = {0.0F,  -0.0F,  50.0F,   -50.0F,   87.0F, -87.0F,
                                         88.5F, -88.5F, 1000.0F, -1000.0F, 1e30F, -1e30F};
    gate.insert(gate.end(), extremes.begin(), extremes.end());
    const int n = static_cast<int>(gate.size());
    const std::vector<float> up = Random(n, 9);
    std::vector<float> y(gate.size() + 1, kGuard);
    GetOpsKernels(level).swiglu(gate.data(), up.data(), n, y.data());
    for (std::size_t i = 0; i < gate.size(); ++i) {
      const double g = gate[i];
      const double expected = g / (1.0 + std::exp(-g)) * up[i];
      EXPECT_NEAR(y[i], expected, 6e-7 * std::abs(expected) + 1e-30) << CpuLevelName(level) << " gate " << g;
    }
    EXPECT_EQ(y.back(), kGuard);
  }
}

TEST(Ops, AddAddsInPlace) {
  for (const CpuLevel level : test::Levels()) {
    const std::vector<float> x = Random(37, 10);
    std::vector<float> y = Random(38, 11);
    const std::vector<float> before = y;
    GetOpsKernels(level).add(x.data(), 37, y.data());
    for (std::size_t i = 0; i < 37; ++i) EXPECT_EQ(y[i], before[i] + x[i]);
    EXPECT_EQ(y.back(), before.back());
  }
}

// x, its scale and codes at one level.
struct Int8Row {
  std::vector<float> x;
  float scale = 0.0F;
  std::uint16_t half = 0;
  std::vector<std::int8_t> codes;
};

Int8Row ToInt8(CpuLevel level, std::vector<float> x) {
  Int8Row row;
  row.codes.assign(x.size() + 1, 99);
  GetOpsKernels(level).to_int8(x.data(), static_cast<std::int32_t>(x.size()), row.codes.data(), &row.half);
  EXPECT_EQ(row.codes.back(), 99);
  row.codes.pop_back();
  row.scale = HalfToFloat(row.half);
  row.x = std::move(x);
  return row;
}

TEST(Ops, Int8IsWithinHalfAScaleWhateverTheMagnitude) {
  for (const CpuLevel level : test::Levels()) {
    for (const int n : {1, 15, 16, 17, 64, 80, 256}) {
      for (const float magnitude : {1e-30F, 1e-9F, 3e-6F, 1e-4F, 0.02F, 1.0F, 300.0F, 2e6F}) {
        const Int8Row row = ToInt8(level, Random(n, 12, magnitude));
        float largest = 0.0F;
        for (const float x : row.x) largest = std::max(largest, std::abs(x));
        // Rounded up to a float16: by a part in 1024 at most, or one subnormal step.
        EXPECT_GE(row.scale, largest / 127.0F);
        EXPECT_LE(row.scale, largest / 127.0F * (1.0F + 0x1p-10F) + 0x1p-24F);
        for (std::size_t i = 0; i < row.x.size(); ++i) {
          EXPECT_LE(std::abs(row.x[i] - row.scale * static_cast<float>(row.codes[i])), row.scale * 0.50001F)
              << CpuLevelName(level) << " n " << n << " magnitude " << magnitude;
        }
        const Int8Row scalar = ToInt8(CpuLevel::kScalar, row.x);
        EXPECT_EQ(row.codes, scalar.codes);
        EXPECT_EQ(row.half, scalar.half);
      }
    }
  }
}

TEST(Ops, Int8OfZerosIsZeroAndOfHugeNumbersFinite) {
  for (const CpuLevel level : test::Levels()) {
    const Int8Row zeros = ToInt8(level, {0.0F, -0.0F, 0.0F});
    EXPECT_EQ(zeros.half, 0);
    EXPECT_EQ(zeros.codes, (std::vector<std::int8_t>{0, 0, 0}));
    const Int8Row huge = ToInt8(level, {1e30F, -3e38F, 65504.0F, 0.0F});
    EXPECT_EQ(huge.scale, 65504.0F);
    EXPECT_EQ(huge.codes, (std::vector<std::int8_t>{127, -127, 1, 0}));
  }
}

TEST(Ops, Int8OfWhatIsNoNumberIsNoNumber) {
  for (const CpuLevel level : test::Levels()) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
      std::vector<float> x = Random(64, 13);
      x[40] = bad;
      EXPECT_TRUE(std::isnan(ToInt8(level, x).scale)) << CpuLevelName(level) << " " << bad;
    }
  }
}

TEST(Ops, HighestIsFoundAtEveryPlaceAndNeverANaN) {
  for (const CpuLevel level : test::Levels()) {
    const OpsKernels& ops = GetOpsKernels(level);
    for (const int n : {1, 7, 16, 17, 63, 64, 65, 200}) {
      for (int at = 0; at < n; ++at) {
        std::vector<float> x = Random(n, 14);
        x.push_back(1e9F);  // beyond the end
        x[static_cast<std::size_t>(at)] = 7.5F;
        if (n > 1) x[static_cast<std::size_t>((at + 1) % n)] = kNan;
        EXPECT_EQ(ops.highest(x.data(), n), 7.5F) << CpuLevelName(level) << " n " << n << " at " << at;
      }
    }
    EXPECT_EQ(ops.highest(std::vector<float>(20, kNan).data(), 20), -kInf);
    EXPECT_EQ(ops.highest(std::vector<float>{-kInf, kInf, 3.0F}.data(), 3), kInf);
  }
}

TEST(Ops, ExpWeightsAgreeWithFloat64AndAreExactAtTheEnds) {
  for (const CpuLevel level : test::Levels()) {
    const OpsKernels& ops = GetOpsKernels(level);
    for (const float temperature : {0.1F, 1.0F, 7.0F}) {
      std::vector<float> x = Random(1003, 15, 5.0F);
      x.insert(x.end(), {kNan, -kInf, -3e38F, 40.0F, 40.0F});
      std::vector<float> y(x.size() + 1, kGuard);
      ops.exp_weights(x.data(), static_cast<std::int32_t>(x.size()), 40.0F, temperature, y.data());
      EXPECT_EQ(y.back(), kGuard);
      for (std::size_t i = 0; i < 1003; ++i) {
        const double expected = std::exp((static_cast<double>(x[i]) - 40.0) / static_cast<double>(temperature));
        EXPECT_NEAR(y[i], expected, 2e-5 * expected + 1e-44) << CpuLevelName(level);
      }
      EXPECT_EQ(std::vector<float>(y.begin() + 1003, y.end() - 1), (std::vector<float>{0.0F, 0.0F, 0.0F, 1.0F, 1.0F}));
    }
    std::vector<float> y(4);
    ops.exp_weights(std::vector<float>{kInf, 1.0F, kNan, kInf}.data(), 4, kInf, 1.0F, y.data());
    EXPECT_EQ(y, (std::vector<float>{1.0F, 0.0F, 0.0F, 1.0F}));
    ops.exp_weights(std::vector<float>{1.0F, 1.0F, 0.999F, -kInf}.data(), 4, 1.0F, 1e-42F, y.data());
    EXPECT_EQ(y, (std::vector<float>{1.0F, 1.0F, 0.0F, 0.0F}));
  }
}

TEST(Ops, Bf16RoundsToNearestEvenAndKeepsInfinityAndNaN) {
  const auto bits = [](float x) {
    std::uint32_t word;
    std::memcpy(&word, &x, sizeof word);
    return word;
  };
  const std::vector<float> x = {1.0F,
                                1.00390625F /* tie, to even: down */,
                                1.01171875F /* tie, to even: up */,
                                1.004F,
                                -3.1415927F,
                                std::numeric_limits<float>::max(),
                                std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN(),
                                0.0F};
  const std::vector<std::uint16_t> expected = {0x3F80, 0x3F80, 0x3F82, 0x3F81, 0xC049, 0x7F80, 0x7F80, 0x7FC0, 0};
  for (const CpuLevel level : test::Levels()) {
    std::vector<std::uint16_t> y(x.size());
    GetOpsKernels(level).to_bf16(x.data(), static_cast<std::int32_t>(x.size()), y.data());
    EXPECT_EQ(y, expected) << CpuLevelName(level);
  }
  EXPECT_EQ(bits(x[1]), 0x3F808000U);
  EXPECT_EQ(bits(x[2]), 0x3F818000U);
}

}  // namespace
}  // namespace berth::cpu
