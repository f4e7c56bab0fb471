#include "kernels/cpu/matmul.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/aligned_bytes.h"
#include "kernels/weight_data.h"
#include "level_cases.h"

namespace berth::cpu {
namespace {

using test::AlignedBytes;
using test::Scales;
using test::StoredWeights;

constexpr std::uint32_t kGuardBits = 0x7FC0BEEF;  // a NaN that no kernel makes
constexpr int kRowGap = 19;                       // floats before, between and after rows of y: more than a panel

// ---- a product, set up and guarded ----

class Product {
 public:
  Product(CpuLevel level, const StoredWeights& weights, bool float32)
      : kernels_(GetMatMulKernels(level)),
        kind_(ChoosePackedKind(weights.format, float32)),
        packed_(PackedBytes(kind_, weights.n, weights.k)),
        matrix_{kind_, weights.n, weights.k, packed_.data()} {
    PackPanels(weights.format, weights.bytes.data(), kind_, weights.n, weights.k, 0, NumPanels(weights.n),
               packed_.data());
  }

  // y, [rows][n], of the panels' columns; everything else in and around y must stay as it was.
  std::vector<float> Run(const std::vector<float>& x, int rows, int panel_begin, int panel_end) const {
    const std::size_t row_bytes = ActivationBytes(kind_, matrix_.k);
    AlignedBytes activations(row_bytes * static_cast<std::size_t>(rows));
    for (int m = 0; m < rows; ++m) {
      kernels_.prepare_row(kind_, x.data() + static_cast<std::ptrdiff_t>(m) * matrix_.k, matrix_.k,
                           activations.data() + static_cast<std::size_t>(m) * row_bytes);
    }
    const std::int64_t ldy = matrix_.n + kRowGap;
    std::vector<float> y(static_cast<std::size_t>(kRowGap + rows * ldy), std::bit_cast<float>(kGuardBits));
    kernels_.matmul(matrix_, activations.data(), rows, y.data() + kRowGap, ldy, panel_begin, panel_end);

    std::vector<float> result;
    const std::int64_t begin = panel_begin * kPanelColumns, end = std::min(matrix_.n, panel_end * kPanelColumns);
    for (std::int64_t i = -kRowGap; i < rows * ldy; ++i) {
      const float value = y[static_cast<std::size_t>(i + kRowGap)];
      const bool inside = i >= 0 && i % ldy >= begin && i % ldy < end;
      const bool untouched = std::bit_cast<std::uint32_t>(value) == kGuardBits;
      if (inside == untouched) ADD_FAILURE() << (inside ? "not written" : "written outside") << ": y + " << i;
      if (inside) result.push_back(value);
    }
    return result;
  }
  std::vector<float> Run(const std::vector<float>& x, int rows) const { return Run(x, rows, 0, NumPanels(matrix_.n)); }

 private:
  const MatMulKernels& kernels_;
  PackedKind kind_;
  AlignedBytes packed_;
  PackedMatrix matrix_;
};

struct Case {
  WeightFormat format;
  bool float32;
};

std::string Name(const Case& c, CpuLevel level) {
  return std::string(test::FormatName(c.format)) + (c.float32 ? " as float32, " : ", ") + CpuLevelName(level);
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (WeightFormat format : test::kAllFormats) {
    cases.push_back({format, false});
    if (format != WeightFormat::kF32) cases.push_back({format, true});
  }
  return cases;
}

bool IntegerActivations(const Case& c) { return test::IsQuantised(c.format) && !c.float32; }

std::vector<int> InputSizes(const Case& c) {
  if (c.format == WeightFormat::kQ6_K) return {256, 768};
  if (test::IsQuantised(c.format)) return {32, 96, 576};
  return {1, 7, 172, 576};
}

// Several blocks, not a whole number of anything else: enough where only the order of operations matters.
int FewInputs(const Case& c) {
  if (c.format == WeightFormat::kQ6_K) return 256;
  return test::IsQuantised(c.format) ? 96 : 43;
}

// Like hidden states: unit variance, a few values far out.
std::vector<float> RandomActivations(int rows, int k, std::mt19937& rng) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> x(static_cast<std::size_t>(rows) * static_cast<std::size_t>(k));
  for (float& value : x) value = normal(rng) * (rng() % 64 == 0 ? 12.0f : 1.0f);
  return x;
}

std::uint32_t Bits(float value) { return std::bit_cast<std::uint32_t>(value); }

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_EQ(Bits(a[i]), Bits(b[i])) << what << ", output " << i;
}

// ---- references in double ----

// What int8 activations stand for, by the rule of the header: round(x / s) · s with s = max |x| / 127 per 32 inputs.
struct Quantised {
  std::vector<double> values;
  std::vector<double> steps;
};

Quantised QuantiseActivations(const std::vector<float>& x) {
  Quantised result;
  for (std::size_t first = 0; first < x.size(); first += 32) {
    float maximum = 0.0f;
    for (std::size_t i = first; i < first + 32; ++i) maximum = std::max(maximum, std::fabs(x[i]));
    const float inverse = 127.0f / maximum;
    for (std::size_t i = first; i < first + 32; ++i) {
      result.values.push_back(static_cast<double>(std::nearbyint(x[i] * inverse)) * (maximum / 127.0f));
      result.steps.push_back(maximum / 127.0f);
    }
  }
  return result;
}

struct Reference {
  double value = 0.0;
  double magnitude = 0.0;  // Σ of the terms' magnitudes
};

Reference Dot(const StoredWeights& weights, int n, const double* x) {
  Reference sum;
  for (int i = 0; i < weights.k; ++i) {
    const std::size_t at =
        static_cast<std::size_t>(n) * static_cast<std::size_t>(weights.k) + static_cast<std::size_t>(i);
    sum.value += weights.values[at] * x[i];
    sum.magnitude += weights.magnitudes[at] * std::fabs(x[i]);
  }
  return sum;
}

// Roundings that one term can pass through, each at most 2^-24 of it. Float kinds: one fma per input, and the rounding
// of the dequantised weight. Integer kinds: at most two fmas per 32 inputs, and the product of the scales.
double RoundingBound(const Case& c, int k) {
  const int roundings = IntegerActivations(c) ? 2 * (k / 32) + 2 : k + 1;
  return roundings * 0x1p-24 * 1.01;
}

// ---- the promises ----

TEST(MatMul, EqualsThePreparedOperandsProductWithinRounding) {
  std::mt19937 rng(1);
  for (const Case& c : AllCases()) {
    for (int k : InputSizes(c)) {
      const StoredWeights weights = test::RandomWeights(c.format, 39, k, Scales::kTypical, rng);
      for (int rows : {1, 2, 5, 9, 17}) {
        const std::vector<float> x = RandomActivations(rows, k, rng);
        const std::vector<double> prepared =
            IntegerActivations(c) ? QuantiseActivations(x).values : std::vector<double>(x.begin(), x.end());
        std::vector<std::vector<float>> y;
        for (CpuLevel level : test::Levels()) y.push_back(Product(level, weights, c.float32).Run(x, rows));
        for (int i = 0; i < rows * 39; ++i) {
          const Reference expected = Dot(weights, i % 39, prepared.data() + static_cast<std::ptrdiff_t>(i / 39) * k);
          for (std::size_t level = 0; level < y.size(); ++level) {
            ASSERT_NEAR(y[level][static_cast<std::size_t>(i)], expected.value, expected.magnitude * RoundingBound(c, k))
                << Name(c, test::Levels()[level]) << " k " << k << " rows " << rows << " output " << i;
          }
        }
      }
    }
  }
}

TEST(MatMul, IsWithinTheQuantisationOfActivationsFromTheExactProduct) {
  std::mt19937 rng(2);
  for (const Case& c : AllCases()) {
    if (!IntegerActivations(c)) continue;
    const int k = 768, n = 64, rows = 6;
    const StoredWeights weights = test::RandomWeights(c.format, n, k, Scales::kTypical, rng);
    const std::vector<float> x = RandomActivations(rows, k, rng);
    const std::vector<double> exact(x.begin(), x.end());
    const Quantised quantised = QuantiseActivations(x);
    for (CpuLevel level : test::Levels()) {
      const std::vector<float> y = Product(level, weights, false).Run(x, rows);
      double squared_error = 0.0, expected_square = 0.0;
      for (int i = 0; i < rows * n; ++i) {
        const double* row = exact.data() + static_cast<std::ptrdiff_t>(i / n) * k;
        const Reference expected = Dot(weights, i % n, row);
        double bound = expected.magnitude * RoundingBound(c, k), variance = 0.0;
        for (int j = 0; j < k; ++j) {
          const double weight = weights.values[static_cast<std::size_t>(i % n * k + j)];
          const double step = quantised.steps[static_cast<std::size_t>(i / n * k + j)];
          bound += std::fabs(weight) * step * 0.5001;
          variance += weight * weight * step * step / 12.0;
        }
        const double error = y[static_cast<std::size_t>(i)] - expected.value;
        ASSERT_LE(std::fabs(error), bound) << Name(c, level) << " output " << i;
        squared_error += error * error;
        expected_square += variance;
      }
      // Nothing but evenly spread rounding of activations: no scale, minimum or sum lost precision on the way.
      EXPECT_LT(std::sqrt(squared_error / expected_square), 1.15) << Name(c, level);
    }
  }
}

TEST(MatMul, ARowsOutputsAreTheSameBitsInEveryBatch) {
  std::mt19937 rng(3);
  for (const Case& c : AllCases()) {
    const int k = FewInputs(c), n = 72;
    const StoredWeights weights = test::RandomWeights(c.format, n, k, Scales::kTypical, rng);
    const std::vector<float> x = RandomActivations(33, k, rng);
    for (CpuLevel level : test::Levels()) {
      const Product product(level, weights, c.float32);
      std::vector<float> alone;
      for (int m = 0; m < 33; ++m) {
        const std::vector<float> row(x.begin() + m * k, x.begin() + (m + 1) * k);
        const std::vector<float> y = product.Run(row, 1);
        alone.insert(alone.end(), y.begin(), y.end());
      }
      for (int rows = 1; rows <= 33; rows += rows < 17 ? 1 : 16) {
        ExpectSameBits(product.Run(x, rows), {alone.begin(), alone.begin() + rows * n},
                       Name(c, level) + ", rows " + std::to_string(rows));
      }
    }
  }
}

TEST(MatMul, OutputsAreTheSameBitsHoweverPanelsAreSplit) {
  std::mt19937 rng(4);
  for (const Case& c : AllCases()) {
    const int k = FewInputs(c), n = 16 * 10 + 3;
    const StoredWeights weights = test::RandomWeights(c.format, n, k, Scales::kTypical, rng);
    for (CpuLevel level : test::Levels()) {
      const Product product(level, weights, c.float32);
      for (int rows : {1, 7, 18}) {
        const std::vector<float> x = RandomActivations(rows, k, rng);
        const std::vector<float> whole = product.Run(x, rows);
        for (const auto& [begin, end] :
             std::vector<std::pair<int, int>>{{0, 1}, {0, 3}, {3, 11}, {5, 7}, {10, 11}, {4, 4}}) {
          const std::vector<float> part = product.Run(x, rows, begin, end);
          const int columns = std::min(n, 16 * end) - std::min(n, 16 * begin);
          ASSERT_EQ(part.size(), static_cast<std::size_t>(rows * columns));
          for (int i = 0; i < rows * columns; ++i) {
            ASSERT_EQ(Bits(part[static_cast<std::size_t>(i)]),
                      Bits(whole[static_cast<std::size_t>(i / columns * n + 16 * begin + i % columns)]))
                << Name(c, level) << " panels " << begin << " to " << end << " rows " << rows;
          }
        }
      }
    }
  }
}

TEST(MatMul, EveryLevelComputesTheSameBits) {
  std::mt19937 rng(5);
  for (const Case& c : AllCases()) {
    for (Scales scales : {Scales::kTypical, Scales::kAnyFinite}) {
      for (int k : InputSizes(c)) {
        const StoredWeights weights = test::RandomWeights(c.format, 23, k, scales, rng);
        const std::vector<float> x = RandomActivations(7, k, rng);
        const std::vector<float> expected = Product(CpuLevel::kScalar, weights, c.float32).Run(x, 7);
        for (CpuLevel level : test::Levels()) {
          const std::vector<float> y = Product(level, weights, c.float32).Run(x, 7);
          for (std::size_t i = 0; i < y.size(); ++i) {
            if (std::isnan(expected[i]) && std::isnan(y[i])) continue;
            ASSERT_EQ(Bits(y[i]), Bits(expected[i])) << Name(c, level) << " k " << k << " output " << i;
          }
        }
      }
    }
  }
}

TEST(MatMul, ProductsLargerThanTheCachesComputeTheSameBits) {
  // Panels so long that a few fill the cache that levels plan for: they are taken in groups.
  std::mt19937 rng(9);
  for (const Case& c :
       {Case{WeightFormat::kF32, false}, Case{WeightFormat::kQ8_0, false}, Case{WeightFormat::kQ4_1, false}}) {
    const int k = 4096, n = 16 * 17 + 1, rows = 2;
    const StoredWeights weights = test::RandomWeights(c.format, n, k, Scales::kTypical, rng);
    const std::vector<float> x = RandomActivations(rows, k, rng);
    const std::vector<float> expected = Product(CpuLevel::kScalar, weights, c.float32).Run(x, rows);
    for (CpuLevel level : test::Levels()) {
      ExpectSameBits(Product(level, weights, c.float32).Run(x, rows), expected, Name(c, level));
    }
  }
}

TEST(MatMul, EveryOutputCountWritesItsColumnsAlone) {
  // Run checks the guards; the sizes around whole panels and whole groups of panels are what could go wrong.
  std::mt19937 rng(6);
  for (const Case& c : AllCases()) {
    const int k = InputSizes(c).front();
    for (int n : {1, 7, 8, 9, 15, 16, 17, 31, 33, 48, 63, 64, 65, 81}) {
      const StoredWeights weights = test::RandomWeights(c.format, n, k, Scales::kTypical, rng);
      for (CpuLevel level : test::Levels()) {
        for (int rows : {1, 5, 12}) {
          EXPECT_EQ(Product(level, weights, c.float32).Run(RandomActivations(rows, k, rng), rows).size(),
                    static_cast<std::size_t>(rows * n));
        }
      }
    }
  }
}

TEST(MatMul, TheLargestCodesDoNotSaturate) {
  // d = 1, every code -128 against every activation code ±127: the largest sums that integer kinds meet.
  StoredWeights weights = {WeightFormat::kQ8_0, 16, 64, {}, {}, {}};
  for (int block = 0; block < 32; ++block) {
    weights.bytes.push_back(std::byte{0x00});
    weights.bytes.push_back(std::byte{0x3C});
    weights.bytes.insert(weights.bytes.end(), 32, std::byte{0x80});
  }
  for (CpuLevel level : test::Levels()) {
    for (float x : {127.0f, -127.0f}) {
      const std::vector<float> y = Product(level, weights, false).Run(std::vector<float>(64, x), 1);
      EXPECT_EQ(y, std::vector<float>(16, -128.0f * x * 64.0f)) << CpuLevelName(level);
    }
  }
  // Q4_1 with d = 1, m = 0 and every code 15.
  weights = {WeightFormat::kQ4_1, 16, 64, {}, {}, {}};
  for (int block = 0; block < 32; ++block) {
    for (int byte : {0x00, 0x3C, 0x00, 0x00}) weights.bytes.push_back(static_cast<std::byte>(byte));
    weights.bytes.insert(weights.bytes.end(), 16, std::byte{0xFF});
  }
  for (CpuLevel level : test::Levels()) {
    for (float x : {127.0f, -127.0f}) {
      const std::vector<float> y = Product(level, weights, false).Run(std::vector<float>(64, x), 1);
      EXPECT_EQ(y, std::vector<float>(16, 15.0f * x * 64.0f)) << CpuLevelName(level);
    }
  }
}

TEST(MatMul, AnInfinityOrNaNSpoilsItsOwnRowAlone) {
  std::mt19937 rng(7);
  for (const Case& c : AllCases()) {
    const int k = FewInputs(c), n = 20;
    const StoredWeights weights = test::RandomWeights(c.format, n, k, Scales::kTypical, rng);
    for (CpuLevel level : test::Levels()) {
      const Product product(level, weights, c.float32);
      for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        std::vector<float> x = RandomActivations(3, k, rng);
        const std::vector<float> clean = product.Run(x, 3);
        x[static_cast<std::size_t>(k + 5)] = bad;
        const std::vector<float> y = product.Run(x, 3);
        for (int i = 0; i < 3 * n; ++i) {
          const std::size_t at = static_cast<std::size_t>(i);
          if (i / n == 1) {
            ASSERT_FALSE(std::isfinite(y[at])) << Name(c, level);
          } else {
            ASSERT_EQ(Bits(y[at]), Bits(clean[at])) << Name(c, level);
          }
        }
      }
    }
  }
}

TEST(MatMul, AllZeroActivationsGiveZeros) {
  std::mt19937 rng(8);
  for (const Case& c : AllCases()) {
    const int k = InputSizes(c).back();
    const StoredWeights weights = test::RandomWeights(c.format, 17, k, Scales::kTypical, rng);
    for (CpuLevel level : test::Levels()) {
      const std::vector<float> y =
          Product(level, weights, c.float32).Run(std::vector<float>(static_cast<std::size_t>(k), 0.0f), 1);
      EXPECT_EQ(y, std::vector<float>(17, 0.0f)) << Name(c, level);
    }
  }
}

}  // namespace
}  // namespace berth::cpu
