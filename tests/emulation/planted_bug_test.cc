// Which way of running finds which mistake. A row that says nothing finds it is as much of a promise as one that says
// something does: it is what other tests must make up for.
#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "emulation/device_array.h"
#include "emulation/fixture.h"
#include "emulation/planted_bugs.h"

namespace berth::planted {
namespace {

using emulation::DeviceArray;
using emulation::Order;

enum class Found {
  kNothing,
  kWrongValue,
  kFault,      // the emulation says what is wrong, and where
  kSanitizer,  // a sanitizer does, and ends the process
};

struct Row {
  Bug bug;
  const char* name;
  Found forward;
  Found reverse;
  bool address_sanitizer;  // and UndefinedBehaviorSanitizer
  bool thread_sanitizer;
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

constexpr Found kNo = Found::kNothing;
constexpr Found kValue = Found::kWrongValue;
constexpr Found kFault = Found::kFault;

// Without a sanitizer's entry its build finds what the plain one does.
constexpr Row kTable[] = {
    {Bug::kMissingBarrierBeforeRead, "MissingBarrierBeforeRead", kNo, kValue, false, true},
    {Bug::kMissingBarrierBeforeOverwrite, "MissingBarrierBeforeOverwrite", kValue, kValue, false, true},
    {Bug::kMissingSyncWarp, "MissingSyncWarp", kNo, kNo, false, true},
    {Bug::kMissingWaitForCopies, "MissingWaitForCopies", kValue, kValue, false, false},
    {Bug::kMissingBarrierAfterWait, "MissingBarrierAfterWait", kNo, kValue, false, true},
    {Bug::kReadPastAllocation, "ReadPastAllocation", kNo, kNo, true, false},
    {Bug::kWritePastAllocation, "WritePastAllocation", kFault, kFault, true, false},
    {Bug::kSharedArrayOverrun, "SharedArrayOverrun", kNo, kNo, true, false},
    {Bug::kLoadMatrixOutside, "LoadMatrixOutside", kFault, kFault, false, false},
    {Bug::kMisalignedCopy, "MisalignedCopy", kFault, kFault, false, false},
    {Bug::kDivergentBarrier, "DivergentBarrier", kFault, kFault, false, false},
    {Bug::kEndBeforeBarrier, "EndBeforeBarrier", kFault, kFault, false, false},
    {Bug::kLaneMissing, "LaneMissing", kFault, kFault, false, false},
    {Bug::kShuffleFromAbsentLane, "ShuffleFromAbsentLane", kFault, kFault, false, false},
    {Bug::kWrongBarrierCount, "WrongBarrierCount", kFault, kFault, false, false},
    {Bug::kUninitialisedShared, "UninitialisedShared", kValue, kValue, false, false},
    {Bug::kRaceBetweenBlocks, "RaceBetweenBlocks", kNo, kNo, false, true},
    {Bug::kMissingFence, "MissingFence", kNo, kNo, false, true},
    {Bug::kTooMuchShared, "TooMuchShared", kFault, kFault, false, false},
    {Bug::kDynamicBeyondLaunch, "DynamicBeyondLaunch", kFault, kFault, false, false},
};

constexpr std::string_view kSanitizers = BERTH_SANITIZE;
constexpr bool kAddress = kSanitizers.starts_with("address");
constexpr bool kThread = kSanitizers == "thread";

Found RunBug(Bug bug, Order order, std::uint64_t seed) {
  emulation::settings().order = order;
  emulation::settings().seed = seed;
  std::vector<float> values(kThreads);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
  Found found = Found::kNothing;
  {
    const DeviceArray<float> in(values);
    const DeviceArray<float> out(values.size());
    const DeviceArray<unsigned> counter(std::vector<unsigned>{0});
    EXPECT_EQ(Launch(bug, in.data(), out.data(), counter.data()), cudaSuccess);
    if (cudaDeviceSynchronize() != cudaSuccess) {
      found = Found::kFault;
    } else {
      const std::vector<float> results = out.Read();
      for (std::size_t i = 0; i < results.size(); ++i) {
        if (results[i] != values[i == 0 ? 0 : i - 1]) found = Found::kWrongValue;
      }
    }
  }
  return found;
}

class PlantedBug : public emulation::EmulationTest, public ::testing::WithParamInterface<Row> {
 protected:
  PlantedBug() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  void Expect(Found expected, Order order) {
    const Row& row = GetParam();
    if ((kAddress && row.address_sanitizer) || (kThread && row.thread_sanitizer)) {
      EXPECT_DEATH((void)RunBug(row.bug, order, 1), "AddressSanitizer|runtime error|data race");
      return;
    }
    EXPECT_EQ(RunBug(row.bug, order, 1), expected);
    if (expected != Found::kFault) return;
    const auto fault = emulation::TakeFault();
    ASSERT_TRUE(fault.has_value());
    // All but the guards behind memory know the line.
    EXPECT_TRUE(row.bug == Bug::kWritePastAllocation || fault->find("planted_bugs.cu:") != std::string::npos);
    (void)cudaDeviceReset();
  }
};

TEST_P(PlantedBug, Forward) { Expect(GetParam().forward, Order::kForward); }

TEST_P(PlantedBug, Reverse) { Expect(GetParam().reverse, Order::kReverse); }

// Whatever one of the two fixed orders finds, a handful of random ones finds.
TEST_P(PlantedBug, Random) {
  const Row& row = GetParam();
  if (!kSanitizers.empty() || row.forward == Found::kFault) GTEST_SKIP() << "the fixed orders say it all";
  bool found = false;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) found |= RunBug(row.bug, Order::kRandom, seed) != Found::kNothing;
  EXPECT_EQ(found, row.forward != Found::kNothing || row.reverse != Found::kNothing);
}

INSTANTIATE_TEST_SUITE_P(Table, PlantedBug, ::testing::ValuesIn(kTable),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace berth::planted
