#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "runner/sampler.h"

namespace berth {
namespace {

using Words = std::array<std::uint32_t, 4>;

// Known answers: the file kat_vectors of the Random123 library, rows philox4x32 10.
TEST(Philox, GivesTheKnownAnswersOfRandom123) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterUniform, IsTheFirstWordOfTheDocumentedCounterAndKey) {
  EXPECT_EQ(CounterUniform(0, 0, 0), 0x6627e8d5 * 0x1p-32);
  const std::uint64_t seed = 0x299f31d0a4093822;
  const std::int64_t position = 0x123456789a;
  EXPECT_EQ(CounterUniform(seed, 7, position),
            Philox4x32({0x3456789a, 0x12, 7, 0}, {0xa4093822, 0x299f31d0})[0] * 0x1p-32);
}

TEST(CounterUniform, StaysInsideZeroToOneForExtremeArguments) {
  constexpr std::uint64_t kSeeds[] = {0, 1, std::numeric_limits<std::uint64_t>::max()};
  for (const std::uint64_t seed : kSeeds) {
    for (const std::int32_t choice : {0, 1, std::numeric_limits<std::int32_t>::max()}) {
      for (const std::int64_t position : {std::int64_t{0}, std::numeric_limits<std::int64_t>::max()}) {
        const double u = CounterUniform(seed, choice, position);
        EXPECT_GE(u, 0.0);
        EXPECT_LT(u, 1.0);
      }
    }
  }
}

TEST(CounterUniform, DiffersBySeedChoiceAndPosition) {
  std::set<double> values;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (std::int32_t choice = 0; choice < 10; ++choice) {
      for (std::int64_t position = 0; position < 10; ++position) values.insert(CounterUniform(seed, choice, position));
    }
  }
  EXPECT_EQ(values.size(), 1000U);
}

// Chi-square with 99 degrees of freedom: 148.2 is its 99.9 % quantile. The seeds are fixed, so this cannot flake.
TEST(CounterUniform, FillsEqualBinsEqually) {
  constexpr int kBins = 100;
  constexpr int kDraws = 100'000;
  for (const std::uint64_t seed : {1ULL, 42ULL, 1234567890123ULL}) {
    std::vector<int> bins(kBins, 0);
    for (int i = 0; i < kDraws; ++i) ++bins[static_cast<std::size_t>(CounterUniform(seed, 0, i) * kBins)];
    double chi_square = 0.0;
    for (const int count : bins) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
    EXPECT_LT(chi_square, 148.2) << "seed " << seed;
  }
}

}  // namespace
}  // namespace berth
