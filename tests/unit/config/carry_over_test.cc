#include "config/carry_over.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "admission/policy_check.h"
#include "policy_cases.h"

namespace berth {
namespace {

using ::testing::ElementsAre;

Policy Resolved(const std::string& text) {
  Diagnostics diagnostics("p.yaml");
  const ServerConfig config = ParsePolicy("version: 1\n" + text, &diagnostics);
  const std::optional<Policy> policy = ResolvePolicy(config, test::SmallPool(), &diagnostics);
  EXPECT_TRUE(policy.has_value());
  return policy.value_or(Policy());
}

TEST(CarryOver, ClassesAndTenantsKeepTheirPlacesByName) {
  const Policy running = Resolved(
      "classes: {interactive: {kv_guarantee: 60%}, batch: {kv_guarantee: 40%}}\n"
      "tenants: {default: {}, acme: {max_kv: 40%}}\n");
  const Policy next = CarryOver(running, Resolved("classes:\n"
                                                  "  gold: {kv_guarantee: 30%}\n"
                                                  "  batch: {kv_guarantee: 20%}\n"
                                                  "  interactive: {kv_guarantee: 50%}\n"
                                                  "tenants:\n"
                                                  "  bert: {classes: [gold, batch]}\n"
                                                  "  acme: {max_kv: 50%}\n"
                                                  "  default: {classes: [gold]}\n"
                                                  "default_class: gold\n"));
  ASSERT_EQ(next.classes.size(), 3u);
  EXPECT_EQ(next.classes[0].name, "interactive");
  EXPECT_EQ(next.classes[0].kv_guarantee_blocks, 50);
  EXPECT_EQ(next.classes[1].name, "batch");
  EXPECT_EQ(next.classes[1].kv_guarantee_blocks, 20);
  EXPECT_EQ(next.classes[2].name, "gold");
  EXPECT_EQ(next.default_class, 2);
  ASSERT_EQ(next.tenants.size(), 3u);
  EXPECT_EQ(next.tenants[0].name, "default");
  EXPECT_THAT(*next.tenants[0].classes, ElementsAre(2));
  EXPECT_EQ(next.tenants[1].name, "acme");
  EXPECT_EQ(next.tenants[1].max_kv_blocks, 50);
  EXPECT_EQ(next.tenants[2].name, "bert");
  EXPECT_THAT(*next.tenants[2].classes, ElementsAre(2, 1));
  EXPECT_EQ(next.default_tenant, 0);
}

TEST(CarryOver, WhatIsGoneStaysWithNothingOfItsOwnAndMayComeBack) {
  const std::string both =
      "classes: {interactive: {kv_guarantee: 60%}, batch: {kv_guarantee: 30%, kv_borrowing_limit: 40%, preemptible: "
      "true}}\n"
      "scheduler: {prefill_min_share: {batch: 10%}}\n"
      "tenants: {default: {max_kv: 20%}, acme: {max_kv: 40%}}\n";
  const Policy running = Resolved(both);
  const Policy next =
      CarryOver(running, Resolved("classes: {interactive: {kv_guarantee: 100%}}\ntenants: {default: {max_kv: 30%}}\n"));
  EXPECT_TRUE(ValidatePolicy(next, test::SmallPool().pool).ok());
  ASSERT_EQ(next.classes.size(), 2u);
  EXPECT_TRUE(next.classes[1].removed);
  EXPECT_EQ(next.classes[1].ceiling_blocks() + next.classes[1].slot_guarantee, 0);
  EXPECT_EQ(next.tenants[1].name, "acme");
  EXPECT_EQ(next.tenants[1].max_kv_blocks, 30) << "as one that is not listed";

  const Policy back = CarryOver(next, Resolved(both));
  ASSERT_EQ(back.classes.size(), 2u);
  EXPECT_FALSE(back.classes[1].removed);
  EXPECT_EQ(back.classes[1].kv_guarantee_blocks, 30);
  EXPECT_EQ(back.tenants[1].max_kv_blocks, 40);
}

TEST(CarryOver, SparePlacesStayWithTheLimitsOfTheNewDefaultTenantAndAListedNameTakesItsOwn) {
  Policy running = Resolved("tenants: {default: {max_kv: 20%}}\n");
  AddSpareTenants(3, &running);
  ASSERT_EQ(running.tenants.size(), 5u);
  EXPECT_EQ(running.tenants[1].name, "");
  EXPECT_EQ(running.tenants[3].max_kv_blocks, 20);
  EXPECT_EQ(running.tenants[4].name, kOtherTenant);
  running.tenants[2].name = "acme";  // it has called

  const Policy next =
      CarryOver(running, Resolved("tenants: {bert: {}, acme: {max_kv: 70%}, default: {max_kv: 30%}}\n"));
  ASSERT_EQ(next.tenants.size(), 6u);
  EXPECT_EQ(next.default_tenant, 0);
  EXPECT_EQ(next.tenants[0].max_kv_blocks, 30);
  EXPECT_EQ(next.tenants[1].name, "");
  EXPECT_EQ(next.tenants[1].max_kv_blocks, 30);
  EXPECT_EQ(next.tenants[2].name, "acme");
  EXPECT_EQ(next.tenants[2].max_kv_blocks, 70);
  EXPECT_EQ(next.tenants[3].max_kv_blocks, 30);
  EXPECT_EQ(next.tenants[4].name, kOtherTenant);
  EXPECT_EQ(next.tenants[4].max_kv_blocks, 30);
  EXPECT_EQ(next.tenants[5].name, "bert");

  const Policy gone = CarryOver(next, Resolved("tenants: {default: {}}\n"));
  EXPECT_EQ(gone.tenants[2].name, "acme") << "unlisted again, at its place";
  EXPECT_EQ(gone.tenants[2].max_kv_blocks, kUnlimited);
}

}  // namespace
}  // namespace berth
