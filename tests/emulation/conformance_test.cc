// What the emulation and a GPU must agree on. Built twice: with the emulation, and by nvcc for a GPU (preset cuda),
// where it skips without a device.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "emulation/conformance_kernels.h"
#include "emulation/device_array.h"

namespace berth::conformance {
namespace {

using emulation::DeviceArray;

constexpr int kLanes = 32;

std::vector<int> LaneValues() {
  std::vector<int> values(kLanes);
  for (int lane = 0; lane < kLanes; ++lane) values[static_cast<std::size_t>(lane)] = (lane * 37 % 64 - 20) * 1001;
  return values;
}

class Conformance : public ::testing::Test {
 protected:
  void SetUp() override { BERTH_REQUIRE_DEVICE(); }
};

TEST_F(Conformance, ShufflesTakeTheValueOfTheNamedLane) {
  const std::vector<int> values = LaneValues();
  const DeviceArray<int> in(values);
  const DeviceArray<int> out(kLanes * kShuffles);
  ASSERT_EQ(LaunchShuffles(in.data(), out.data()), cudaSuccess);
  const std::vector<int> results = out.Read();
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto at = [&](int other) { return values[static_cast<std::size_t>(other)]; };
    const int* own = results.data() + lane * kShuffles;
    EXPECT_EQ(own[0], at(lane / 8 * 8 + 5)) << lane;
    EXPECT_EQ(own[1], at(lane ^ 3)) << lane;
    EXPECT_EQ(own[2], at(lane % 16 < 2 ? lane : lane - 2)) << lane;
    EXPECT_EQ(own[3], at(lane % 16 >= 14 ? lane : lane + 2)) << lane;
    EXPECT_EQ(own[4], 3 * at(lane ^ 16)) << lane;
  }
}

TEST_F(Conformance, ALaneIsAPlaceInItsWarp) {
  constexpr std::size_t kThreads = 72;
  const DeviceArray<int> out(kThreads);
  ASSERT_EQ(LaunchLaneIds(kThreads, out.data()), cudaSuccess);
  const std::vector<int> results = out.Read();
  for (std::size_t thread = 0; thread < kThreads; ++thread) EXPECT_EQ(results[thread], static_cast<int>(thread % 32));
}

TEST_F(Conformance, VotesCountTheLanesOfTheMask) {
  const std::vector<int> values = LaneValues();
  for (const int threshold : {-100000, 0, 100000}) {
    const DeviceArray<int> in(values);
    const DeviceArray<unsigned> out(kLanes * kVotes);
    ASSERT_EQ(LaunchVotes(in.data(), threshold, out.data()), cudaSuccess);
    unsigned votes = 0;
    for (unsigned lane = 1; lane < kLanes; lane += 2) votes |= (values[lane] > threshold ? 1u : 0u) << lane;
    const std::vector<unsigned> results = out.Read();
    for (std::size_t lane = 1; lane < kLanes; lane += 2) {
      EXPECT_EQ(results[lane * kVotes], votes);
      EXPECT_EQ(results[lane * kVotes + 1], votes != 0 ? 1u : 0u);
      EXPECT_EQ(results[lane * kVotes + 2], votes == 0xaaaaaaaau ? 1u : 0u);
    }
  }
}

TEST_F(Conformance, ReductionsCombineAllLanes) {
  const std::vector<int> values = LaneValues();
  std::vector<unsigned> bits(values.begin(), values.end());
  const DeviceArray<int> in(values);
  const DeviceArray<unsigned> out(kLanes * kReductions);
  ASSERT_EQ(LaunchReductions(in.data(), out.data()), cudaSuccess);
  const std::vector<unsigned> expected = {static_cast<unsigned>(std::accumulate(values.begin(), values.end(), 0)),
                                          static_cast<unsigned>(*std::min_element(values.begin(), values.end())),
                                          static_cast<unsigned>(*std::max_element(values.begin(), values.end())),
                                          std::accumulate(bits.begin(), bits.end(), 0u),
                                          *std::min_element(bits.begin(), bits.end()),
                                          *std::max_element(bits.begin(), bits.end()),
                                          std::accumulate(bits.begin(), bits.end(), ~0u, std::bit_and<>()),
                                          std::accumulate(bits.begin(), bits.end(), 0u, std::bit_or<>()),
                                          std::accumulate(bits.begin(), bits.end(), 0u, std::bit_xor<>())};
  const std::vector<unsigned> results = out.Read();
  for (std::size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i], expected[i % kReductions]) << i;
}

// Small integers: exact in each type, so that every element of every fragment must be in its place.
template <typename Sum, typename Encode>
void CheckMma(MmaType type, int depth, Encode encode) {
  using Element = decltype(encode(0));
  std::vector<int> a(static_cast<std::size_t>(16 * depth));
  std::vector<int> b(static_cast<std::size_t>(depth * 8));
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<int>(i * 7 % 31) - 15;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<int>(i * 11 % 29) - 14;
  std::vector<Sum> c(16 * 8);
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = static_cast<Sum>(static_cast<int>(i) * 3 - 100);
  const auto encoded = [&](const std::vector<int>& values) {
    std::vector<Element> result;
    for (const int value : values) result.push_back(encode(value));
    return result;
  };
  const DeviceArray<Element> device_a(encoded(a));
  const DeviceArray<Element> device_b(encoded(b));
  const DeviceArray<Sum> device_c(c);
  const DeviceArray<Sum> device_d(16 * 8);
  ASSERT_EQ(LaunchMma(type, device_a.data(), device_b.data(), device_c.data(), device_d.data()), cudaSuccess);
  const std::vector<Sum> d = device_d.Read();
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      Sum sum = c[static_cast<std::size_t>(row * 8 + column)];
      for (int k = 0; k < depth; ++k) {
        sum += static_cast<Sum>(a[static_cast<std::size_t>(row * depth + k)] *
                                b[static_cast<std::size_t>(k * 8 + column)]);
      }
      EXPECT_EQ(d[static_cast<std::size_t>(row * 8 + column)], sum) << row << ", " << column;
    }
  }
}

TEST_F(Conformance, MmaOfBf16MultipliesItsFragments) {
  CheckMma<float>(MmaType::kBf16, 16, [](int value) {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16);
  });
}

TEST_F(Conformance, MmaOfF16MultipliesItsFragments) {
  CheckMma<float>(MmaType::kF16, 16, [](int value) {
    if (value == 0) return std::uint16_t{0};
    // A small integer's float16: the float32 with a shorter exponent and mantissa.
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    const std::uint32_t exponent = (bits >> 23 & 0xff) - 127 + 15;
    return static_cast<std::uint16_t>((bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3ff));
  });
}

TEST_F(Conformance, MmaOfBytesMultipliesItsFragments) {
  CheckMma<int>(MmaType::kS8, 32, [](int value) { return static_cast<std::uint8_t>(value); });
}

TEST_F(Conformance, LoadMatrixGivesEachLaneItsPair) {
  for (const int count : {1, 2, 4}) {
    for (const bool transposed : {false, true}) {
      std::vector<std::uint16_t> rows(static_cast<std::size_t>(count * 64));
      std::iota(rows.begin(), rows.end(), std::uint16_t{100});
      const DeviceArray<std::uint16_t> in(rows);
      const DeviceArray<std::uint32_t> out(static_cast<std::size_t>(kLanes * count));
      ASSERT_EQ(LaunchLoadMatrix(count, transposed, in.data(), out.data()), cudaSuccess);
      const std::vector<std::uint32_t> registers = out.Read();
      for (int lane = 0; lane < kLanes; ++lane) {
        for (int matrix = 0; matrix < count; ++matrix) {
          const auto at = [&](int row, int column) {
            return std::uint32_t{rows[static_cast<std::size_t>(matrix * 64 + row * 8 + column)]};
          };
          const int pair = lane % 4 * 2;
          const std::uint32_t expected = transposed ? at(pair, lane / 4) | at(pair + 1, lane / 4) << 16
                                                    : at(lane / 4, pair) | at(lane / 4, pair + 1) << 16;
          EXPECT_EQ(registers[static_cast<std::size_t>(lane * count + matrix)], expected) << lane << ", " << matrix;
        }
      }
    }
  }
}

TEST_F(Conformance, CopiesArriveWithTheirGroupAndInvalidOnesAreZero) {
  for (const int bytes : {4, 8, 16}) {
    std::vector<std::uint8_t> source(static_cast<std::size_t>(32 * bytes));
    std::iota(source.begin(), source.end(), std::uint8_t{1});
    const DeviceArray<std::uint8_t> in(source);
    const DeviceArray<std::uint8_t> out(source.size());
    ASSERT_EQ(LaunchCopies(bytes, in.data(), out.data()), cudaSuccess);
    const std::vector<std::uint8_t> results = out.Read();
    for (std::size_t i = 0; i < results.size(); ++i) {
      const bool valid = i / static_cast<std::size_t>(bytes) % 2 == 0;
      EXPECT_EQ(results[i], valid ? source[i] : 0) << i;
    }
  }
}

TEST_F(Conformance, NamedBarriersOrderProducersAndConsumers) {
  constexpr int kRounds = 5;
  std::vector<int> values(kRounds * 64);
  std::iota(values.begin(), values.end(), 1);
  const DeviceArray<int> in(values);
  const DeviceArray<int> out(values.size());
  ASSERT_EQ(LaunchProducers(kRounds, in.data(), out.data()), cudaSuccess);
  const std::vector<int> results = out.Read();
  for (std::size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i], values[i / 64 * 64 + 63 - i % 64]) << i;
}

TEST_F(Conformance, AtomicsLoseNoUpdate) {
  const DeviceArray<AtomicResults> out(std::vector<AtomicResults>{{0.0f, 0, 1000, -1, 0, 0, 0}});
  ASSERT_EQ(LaunchAtomics(out.data()), cudaSuccess);
  const AtomicResults results = out.Read()[0];
  EXPECT_EQ(results.sum, 255.0f * 256 / 2);
  EXPECT_EQ(results.count, 256u);
  EXPECT_EQ(results.minimum, 0);
  EXPECT_EQ(results.maximum, 255);
  EXPECT_EQ(results.wrapped, 256u % 10);
  EXPECT_EQ(results.exchanged, 77);
  EXPECT_GE(results.swapped, 1);  // by how much more depends on the order
}

TEST_F(Conformance, TheLastBlockSeesWhatTheOthersWrote) {
  constexpr int kBlocks = 9;
  std::vector<float> values(kBlocks * 64);
  std::iota(values.begin(), values.end(), 0.0f);
  const DeviceArray<float> in(values);
  const DeviceArray<float> partial(kBlocks);
  const DeviceArray<unsigned> counter(std::vector<unsigned>{0});
  const DeviceArray<float> sum(1);
  ASSERT_EQ(LaunchLastBlock(kBlocks, in.data(), partial.data(), counter.data(), sum.data()), cudaSuccess);
  EXPECT_EQ(sum.Read()[0], std::accumulate(values.begin(), values.end(), 0.0f));
  EXPECT_EQ(counter.Read()[0], 0u) << "ready for the next launch";
}

TEST_F(Conformance, DynamicSharedMemoryMayExceed48KiB) {
  std::vector<float> values(kMaxReversed);
  std::iota(values.begin(), values.end(), 0.0f);
  const DeviceArray<float> in(values);
  const DeviceArray<float> out(values.size());
  ASSERT_EQ(LaunchReverse(kMaxReversed, in.data(), out.data()), cudaSuccess);
  std::reverse(values.begin(), values.end());
  EXPECT_EQ(out.Read(), values);
}

TEST_F(Conformance, AThreadMayWaitForAnotherOfItsBlock) {
  const DeviceArray<int> result(1);
  ASSERT_EQ(LaunchSpin(result.data()), cudaSuccess);
  EXPECT_EQ(result.Read()[0], 42);
}

TEST_F(Conformance, FunctionsAreWithinTheirPublishedErrors) {
  std::vector<float> values;
  for (float x = 0.01f; x < 20.0f; x *= 1.1f) values.push_back(x);
  values.push_back(-300.0f);  // 2^x is subnormal in no format: zero
  const DeviceArray<float> in(values);
  const DeviceArray<float> out(values.size() * kFunctions);
  ASSERT_EQ(LaunchFunctions(static_cast<int>(values.size()), in.data(), out.data()), cudaSuccess);
  const std::vector<float> results = out.Read();
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    const double x = values[i];
    const float* own = results.data() + i * kFunctions;
    EXPECT_NEAR(own[0], std::exp2(x), std::exp2(x) * 3e-7);
    EXPECT_NEAR(own[1], std::exp(x), std::exp(x) * (1.2e-7 * (2 + 1.16 * x) + 3e-7));
    EXPECT_NEAR(own[2], x / 3, x * 3e-7);
    EXPECT_NEAR(own[3], 1 / std::sqrt(x), 3e-7 / std::sqrt(x));
    EXPECT_NEAR(own[4], x, x / 256);
    EXPECT_EQ(own[5], -own[4]);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(own[4]) & 0xffff, 0u);
    const float square = values[i] * values[i];
    EXPECT_EQ(own[6], square - values[i]);
    int exponent = 0;
    EXPECT_EQ(own[7], 2 * std::frexp(values[i], &exponent)) << "1.m of a value's m";
  }
  EXPECT_EQ(results[(values.size() - 1) * kFunctions], 0.0f);
}

}  // namespace
}  // namespace berth::conformance
