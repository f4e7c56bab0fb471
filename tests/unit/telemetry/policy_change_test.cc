// Series follow the policy's classes and tenants.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "fakes/fake_clock.h"
#include "fakes/metrics_scene.h"
#include "fakes/page_reader.h"
#include "telemetry/telemetry.h"

namespace berth::test {
namespace {

class PolicyChangeTest : public testing::Test {
 protected:
  PolicyChangeTest() { Tell(); }
  void Tell(std::vector<TenantId> unlisted = {}) { telemetry_.OnPolicy({.policy = &policy_, .unlisted = unlisted}); }
  Page Read() { return ReadPage(telemetry_.Page()); }
  void End(ClassId service_class, TenantId tenant) {
    telemetry_.OnEnd({.service_class = service_class,
                      .tenant = tenant,
                      .reason = FinishReason::kLength,
                      .started = true,
                      .usage = {.output_tokens = 1}});
  }
  static double Ended(const Page& page, const std::string& service_class, const std::string& tenant) {
    return ValueOf(page, "berth_requests_total{class=\"" + service_class + "\",tenant=\"" + tenant +
                             "\",outcome=\"ok\",reason=\"length\"}");
  }
  static double Latencies(const Page& page, const std::string& service_class) {
    return ValueOf(page, "berth_e2e_request_latency_seconds_count{class=\"" + service_class + "\"}");
  }
  void AddTenants(int count, std::vector<TenantId>* ids) {
    for (int i = 0; i < count; ++i) {
      TenantPolicy tenant;
      tenant.name = "walk-in-" + std::to_string(policy_.tenants.size());
      ids->push_back(static_cast<TenantId>(policy_.tenants.size()));
      policy_.tenants.push_back(tenant);
    }
  }

  Policy policy_ = ScenePolicy();
  FakeClock clock_;
  Telemetry telemetry_{SceneOptions(), &clock_};
};

TEST_F(PolicyChangeTest, CountersSurviveAChangeThatMovesEverything) {
  End(kInteractive, kAcme);
  End(kBatch, kAcme);
  policy_.classes.emplace_back().name = "night";
  policy_.tenants.emplace_back().name = "zeta";
  Tell();
  End(2, 2);
  const Page page = Read();
  EXPECT_EQ(Ended(page, "interactive", "acme"), 1.0);
  EXPECT_EQ(Ended(page, "batch", "acme"), 1.0);
  EXPECT_EQ(Ended(page, "night", "zeta"), 1.0);
  EXPECT_EQ(Ended(page, "night", "acme"), 0.0);
  EXPECT_EQ(Latencies(page, "batch"), 1.0);
}

TEST_F(PolicyChangeTest, ARemovedClassIsShownUntilItsLastRequestHasEnded) {
  LoadSnapshot load;
  load.classes.resize(2);
  load.classes[kBatch] = {.running_requests = 1, .used_blocks = 5};
  telemetry_.OnLoad(load);
  policy_.classes[kBatch].removed = true;
  Tell();
  Page page = Read();
  EXPECT_EQ(ValueOf(page, "berth_requests_running{class=\"batch\"}"), 1.0);
  EXPECT_EQ(ValueOf(page, "berth_class_kv_guaranteed_blocks{class=\"batch\"}"), 0.0);
  EXPECT_EQ(ValueOf(page, "berth_class_stopped{class=\"batch\"}"), 1.0);

  load.classes[kBatch] = {};
  telemetry_.OnLoad(load);
  for (const auto& [series, value] : Read()) EXPECT_EQ(series.find("class=\"batch\""), std::string::npos) << series;
  // What is still under way is counted, and forgotten with the class.
  End(kBatch, kAcme);
  Tell();
  EXPECT_EQ(Ended(Read(), "batch", "acme"), -1.0);
}

TEST_F(PolicyChangeTest, AnIndexThatAnotherClassTookOverCountsForThatOne) {
  End(kBatch, kAcme);
  policy_.classes[kBatch].name = "bulk";
  Tell();
  End(kBatch, kAcme);
  const Page page = Read();
  EXPECT_EQ(Ended(page, "bulk", "acme"), 1.0);
  EXPECT_EQ(Ended(page, "batch", "acme"), -1.0);
}

TEST_F(PolicyChangeTest, UnlistedTenantsKeepTheirNamesUpToACapAndShareOtherBeyondIt) {
  std::vector<TenantId> unlisted;
  AddTenants(Telemetry::kMaxUnlistedNames + 3, &unlisted);
  Tell(unlisted);
  for (const TenantId id : unlisted) End(kBatch, id);
  const Page page = Read();
  EXPECT_EQ(Ended(page, "batch", "walk-in-2"), 1.0);
  EXPECT_EQ(Ended(page, "batch", "walk-in-101"), 1.0);
  EXPECT_EQ(Ended(page, "batch", "walk-in-102"), -1.0);
  EXPECT_EQ(Ended(page, "batch", "other"), 3.0);
}

TEST_F(PolicyChangeTest, WhoHasANameKeepsItWhenOthersCome) {
  std::vector<TenantId> first;
  AddTenants(1, &first);
  std::vector<TenantId> all;
  AddTenants(Telemetry::kMaxUnlistedNames, &all);
  const TenantId early = all.back();
  Tell({early});
  End(kBatch, early);
  all.push_back(first[0]);
  Tell(all);
  End(kBatch, early);
  EXPECT_EQ(Ended(Read(), "batch", policy_.tenants[static_cast<std::size_t>(early)].name), 2.0);
}

TEST_F(PolicyChangeTest, AnUnlistedTenantsSeriesAppearWhenTheyMove) {
  std::vector<TenantId> unlisted;
  AddTenants(1, &unlisted);
  Tell(unlisted);
  EXPECT_EQ(Ended(Read(), "batch", "walk-in-2"), -1.0);
  End(kBatch, unlisted[0]);
  const Page page = Read();
  EXPECT_EQ(Ended(page, "batch", "walk-in-2"), 1.0);
  EXPECT_EQ(Ended(page, "interactive", "walk-in-2"), -1.0);
}

TEST_F(PolicyChangeTest, ListedTenantsKeepTheirNamesHoweverMany) {
  std::vector<TenantId> listed;
  AddTenants(300, &listed);
  Tell();
  End(kBatch, listed.back());
  const Page page = Read();
  EXPECT_EQ(Ended(page, "batch", "walk-in-301"), 1.0);
  // The page stays bounded: those beyond the first hundred show what moved.
  EXPECT_EQ(Ended(page, "batch", "walk-in-2"), 0.0);
  EXPECT_EQ(Ended(page, "batch", "walk-in-300"), -1.0);
}

TEST_F(PolicyChangeTest, ATenantCalledOtherSharesWithTheRest) {
  policy_.tenants[kAcme].name = "other";
  Tell();
  End(kBatch, kAcme);
  telemetry_.OnEnd({.service_class = kBatch, .reason = FinishReason::kLength});
  EXPECT_EQ(Ended(Read(), "batch", "other"), 2.0);
}

TEST_F(PolicyChangeTest, ARequestRefusedBeforeItsClassWasKnownIsOther) {
  telemetry_.OnEnd({.tenant = kAcme, .reason = RefusalReason::kUnknownClass});
  telemetry_.OnEnd({.service_class = 77, .tenant = 77, .reason = RefusalReason::kUnknownClass});
  const Page page = Read();
  const std::string reason = "\",outcome=\"rejected\",reason=\"unknown_class\"}";
  EXPECT_EQ(ValueOf(page, "berth_requests_total{class=\"other\",tenant=\"acme" + reason), 1.0);
  EXPECT_EQ(ValueOf(page, "berth_requests_total{class=\"other\",tenant=\"other" + reason), 1.0);
  EXPECT_EQ(Latencies(page, "other"), -1.0);
}

TEST_F(PolicyChangeTest, TheBillKnowsEveryTenantByItsName) {
  std::vector<TenantId> unlisted;
  AddTenants(Telemetry::kMaxUnlistedNames + 1, &unlisted);
  Tell(unlisted);
  End(kBatch, unlisted.back());
  const UsageReport report = telemetry_.usage().Since(WallClockNow() - std::chrono::hours(1));
  ASSERT_EQ(report.rows.size(), 1U);
  EXPECT_EQ(report.rows[0].tenant, "walk-in-102");
  EXPECT_EQ(report.rows[0].service_class, "batch");
}

}  // namespace
}  // namespace berth::test
