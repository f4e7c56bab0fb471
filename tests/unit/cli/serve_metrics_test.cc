#include "cli/serve_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace berth::cli {
namespace {

using ::testing::ElementsAre;

TEST(ServeMetrics, PromisesFollowTheNamesOfClassesNotTheirPlaces) {
  ServerConfig config;
  config.classes.resize(2);
  config.classes[0].name = "gold";
  config.classes[0].slo.time_to_first_token = std::chrono::seconds(1);
  config.classes[0].slo.objective_millionths = 950'000;
  config.classes[1].name = "iron";
  config.classes[1].slo.inter_token_latency = std::chrono::milliseconds(200);
  Policy policy;
  policy.classes.resize(3);
  policy.classes[0].name = "gone";
  policy.classes[1].name = "iron";
  policy.classes[2].name = "gold";
  const std::vector<ClassSlo> slos = SlosOf(config, policy);
  ASSERT_EQ(slos.size(), 3U);
  EXPECT_FALSE(slos[0].time_to_first_token.has_value() || slos[0].inter_token_latency.has_value());
  EXPECT_EQ(slos[1].inter_token_latency, std::chrono::milliseconds(200));
  EXPECT_EQ(slos[2].time_to_first_token, std::chrono::seconds(1));
  EXPECT_DOUBLE_EQ(slos[2].objective, 0.95);
}

TEST(ServeMetrics, TenantsThatNoFileListsAreKnownAsSuchOnceTheyHaveNames) {
  ServerConfig config;
  config.tenants.resize(1);
  config.tenants[0].name = "acme";
  Policy policy;
  for (const char* name : {"default", "acme", "stranger", ""}) policy.tenants.emplace_back().name = name;
  EXPECT_THAT(UnlistedTenants(config, policy), ElementsAre(2));
}

}  // namespace
}  // namespace berth::cli
