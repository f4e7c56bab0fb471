// The simulation holds on the core as it is, and finds every fault that is planted in it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/planted_bug.h"

namespace berth {
namespace {

TEST(Simulation, EveryInvariantHoldsAfterEveryPlan) {
  const char* requests = std::getenv("REQUESTS");
  const char* seed = std::getenv("SEED");
  EXPECT_EQ(std::system((std::string("REQUESTS=") + (requests == nullptr ? "200000" : requests) +
                         " SEED=" + (seed == nullptr ? "1" : seed) + " " + BERTH_SIMTEST)
                            .c_str()),
            0);
}

#ifdef BERTH_SIMTEST_PLANTED
int Simtest(const std::string& environment, const std::string& program) {
  return std::system((environment + " " + program + " > /dev/null 2>&1").c_str());
}

class PlantedBugTest : public testing::TestWithParam<int> {};

TEST_P(PlantedBugTest, IsFoundWithinTwentyThousandRequests) {
  EXPECT_NE(Simtest("REQUESTS=20000 SEED=1 BUG=" + std::to_string(GetParam()), BERTH_SIMTEST_PLANTED), 0);
}

INSTANTIATE_TEST_SUITE_P(Simulation, PlantedBugTest,
                         testing::Range(1, static_cast<int>(PlantedBug::kCarriedFromAnother) + 1));

TEST(Simulation, TheBuildWithBugsHoldsWhenNoneIsSwitchedOn) {
  EXPECT_EQ(Simtest("REQUESTS=20000 SEED=1 BUG=0", BERTH_SIMTEST_PLANTED), 0);
}
#endif

}  // namespace
}  // namespace berth
