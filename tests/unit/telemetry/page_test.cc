// What the page of /metrics shows of what happened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>

#include "fakes/fake_clock.h"
#include "fakes/metrics_scene.h"
#include "fakes/page_reader.h"
#include "telemetry/metric_table.h"
#include "telemetry/telemetry.h"

namespace berth::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class PageTest : public testing::Test {
 protected:
  PageTest() { telemetry_.OnPolicy({.policy = &policy_, .slos = slos_}); }
  Page Read() { return ReadPage(telemetry_.Page()); }

  const Policy policy_ = ScenePolicy();
  const std::vector<ClassSlo> slos_ = SceneSlos();
  FakeClock clock_;
  Telemetry telemetry_{SceneOptions(), &clock_};
};

std::set<std::string> SeriesOf(const Page& page) {
  std::set<std::string> series;
  for (const auto& [name, value] : page) series.insert(name);
  return series;
}

TEST_F(PageTest, EverySeriesIsThereFromTheStart) {
  const Page at_start = Read();
  PlayEverything(&telemetry_, clock_.Now());
  Page later = Read();
  // A reload changes the label of what says which policy is in force.
  later.erase("berth_config_info{hash=\"sha256:01\"}");
  std::set<std::string> expected = SeriesOf(at_start);
  expected.erase("berth_config_info{hash=\"sha256:00\"}");
  EXPECT_EQ(SeriesOf(later), expected);
}

TEST_F(PageTest, CountersAndHistogramsStartAtZero) {
  for (const auto& [series, value] : Read()) {
    if (series.starts_with("process_")) continue;
    const std::string name = series.substr(0, series.find('{'));
    if (name.ends_with("_total") || name.ends_with("_count") || name.ends_with("_sum") || name.ends_with("_bucket")) {
      EXPECT_EQ(value, 0.0) << series;
    }
  }
}

TEST_F(PageTest, EveryMetricOfTheTableIsShownAndMovesInTheScene) {
  const Page before = Read();
  PlayEverything(&telemetry_, clock_.Now());
  const Page after = Read();
  for (const MetricSpec& spec : MetricTable()) {
    const std::string name = spec.name;
    bool shown = false;
    bool moved = false;
    for (const auto& [series, value] : after) {
      const std::string_view family = std::string_view(series).substr(0, series.find('{'));
      if (family != name && family != name + "_count") continue;
      shown = true;
      moved = moved || value > 0.0 || ValueOf(before, series) != value;
    }
    EXPECT_TRUE(shown) << name;
    // Nothing stops a class in the scene; a process may have used no whole tick of CPU time.
    EXPECT_TRUE(moved || name == "berth_class_stopped" || name.starts_with("process_")) << name;
  }
}

TEST_F(PageTest, StatesPartitionThePoolAndUsageIsOneRatioPerServer) {
  PlayEverything(&telemetry_, clock_.Now());
  const Page page = Read();
  EXPECT_EQ(ValueOf(page, "berth_kv_blocks{state=\"free\"}") + ValueOf(page, "berth_kv_blocks{state=\"cached\"}") +
                ValueOf(page, "berth_kv_blocks{state=\"held\"}"),
            100.0);
  EXPECT_EQ(ValueOf(page, "berth_kv_used_ratio"), 0.7);
  EXPECT_EQ(ValueOf(page, "berth_kv_committed_ratio"), 0.75);
  EXPECT_EQ(ValueOf(page, "berth_router_kv_usage_ratio"), 0.75);
  EXPECT_EQ(ValueOf(page, "berth_router_requests_waiting"), 2.0);
  EXPECT_EQ(ValueOf(page, "berth_router_requests_running"), 4.0);
}

TEST_F(PageTest, EachHistogramCountsTheRequestsThatItShould) {
  // Started and ended well; started, no token, failed; started, one token, cancelled; refused.
  RequestEnded end{.service_class = kInteractive, .tenant = kAcme, .reason = FinishReason::kLength, .started = true};
  end.usage = {.prompt_tokens = 10, .output_tokens = 5, .reserved_blocks = 4, .peak_blocks = 2};
  const TokenCame first{.service_class = kInteractive, .tenant = kAcme, .kind = TokenCame::Kind::kFirstOfRequest};
  const TokenCame next{.service_class = kInteractive, .tenant = kAcme};
  telemetry_.OnTokens(std::vector<TokenCame>{first, next, next, next, next});
  telemetry_.OnEnd(end);
  end.reason = RefusalReason::kBackendFault;
  end.usage.output_tokens = 0;
  telemetry_.OnEnd(end);
  end.reason = RefusalReason::kCancelledByClient;
  end.usage.output_tokens = 1;
  telemetry_.OnTokens({&first, 1});
  telemetry_.OnEnd(end);
  end = {.service_class = kInteractive, .tenant = kAcme, .reason = RefusalReason::kQueueFull};
  telemetry_.OnEnd(end);

  const Page page = Read();
  const auto count = [&](const std::string& name) { return ValueOf(page, name + "_count{class=\"interactive\"}"); };
  EXPECT_EQ(count("berth_request_queue_time_seconds"), 3.0);
  EXPECT_EQ(count("berth_e2e_request_latency_seconds"), 3.0);
  EXPECT_EQ(count("berth_request_prompt_tokens"), 3.0);
  EXPECT_EQ(count("berth_request_output_tokens"), 3.0);
  EXPECT_EQ(count("berth_kv_estimate_ratio"), 3.0);
  EXPECT_EQ(count("berth_time_to_first_token_seconds"), 2.0);
  EXPECT_EQ(count("berth_request_prefill_time_seconds"), 2.0);
  EXPECT_EQ(count("berth_request_decode_time_seconds"), 2.0);
  EXPECT_EQ(count("berth_request_time_per_output_token_seconds"), 1.0);
  EXPECT_EQ(count("berth_inter_token_latency_seconds"), 4.0);
  EXPECT_EQ(ValueOf(page, "berth_output_tokens_total{class=\"interactive\",tenant=\"acme\"}"), 6.0);
}

TEST_F(PageTest, ABucketCountsWhatIsEqualToItsBound) {
  const TokenCame token{.service_class = kBatch, .tenant = kAcme, .after = milliseconds(10)};
  telemetry_.OnTokens({&token, 1});
  const Page page = Read();
  EXPECT_EQ(ValueOf(page, "berth_inter_token_latency_seconds_bucket{class=\"batch\",le=\"0.005\"}"), 0.0);
  EXPECT_EQ(ValueOf(page, "berth_inter_token_latency_seconds_bucket{class=\"batch\",le=\"0.01\"}"), 1.0);
  EXPECT_EQ(ValueOf(page, "berth_inter_token_latency_seconds_bucket{class=\"batch\",le=\"+Inf\"}"), 1.0);
}

TEST_F(PageTest, APauseByPreemptionShowsInTheLatencyOfItsToken) {
  const TokenCame tokens[] = {{.service_class = kBatch, .kind = TokenCame::Kind::kFirstOfRequest, .after = seconds(1)},
                              {.service_class = kBatch, .after = milliseconds(20)},
                              {.service_class = kBatch, .after = seconds(30)}};
  telemetry_.OnTokens(tokens);
  telemetry_.OnPreemption(kBatch, PreemptionMode::kRecompute);
  const Page page = Read();
  EXPECT_EQ(ValueOf(page, "berth_time_to_first_token_seconds_count{class=\"batch\"}"), 1.0);
  EXPECT_EQ(ValueOf(page, "berth_inter_token_latency_seconds_count{class=\"batch\"}"), 2.0);
  EXPECT_DOUBLE_EQ(ValueOf(page, "berth_inter_token_latency_seconds_sum{class=\"batch\"}"), 30.02);
}

TEST_F(PageTest, RecomputationIsWastedAndNoTenants) {
  PlayEverything(&telemetry_, clock_.Now());
  const Page page = Read();
  const std::string batch = "class=\"batch\",tenant=";
  EXPECT_DOUBLE_EQ(ValueOf(page, "berth_accelerator_seconds_total{" + batch + "\"default\",phase=\"prefill\"}"), 0.03);
  EXPECT_DOUBLE_EQ(ValueOf(page, "berth_wasted_accelerator_seconds_total{" + batch + "\"other\",reason=\"recompute\"}"),
                   0.01);
  EXPECT_EQ(ValueOf(page, "berth_wasted_accelerator_seconds_total{" + batch + "\"default\",reason=\"recompute\"}"),
            0.0);
  EXPECT_DOUBLE_EQ(ValueOf(page, "berth_accelerator_busy_seconds_total{phase=\"prefill\"}"), 0.04);
  EXPECT_EQ(ValueOf(page, "berth_recomputed_tokens_total{class=\"batch\"}"), 80.0);
}

TEST_F(PageTest, TheTimeOfWhatDidNotEndWellIsWastedAndItsTokensAreNotUseful) {
  PlayEverything(&telemetry_, clock_.Now());
  const Page page = Read();
  for (const std::string reason : {"deadline", "cancelled", "error"}) {
    EXPECT_EQ(ValueOf(page, "berth_wasted_accelerator_seconds_total{class=\"interactive\",tenant=\"acme\",reason=\"" +
                                reason + "\"}"),
              0.75);
  }
  EXPECT_EQ(ValueOf(page, "berth_useful_tokens_total{class=\"interactive\",tenant=\"acme\"}"), 3.0);
}

TEST_F(PageTest, AnAnswerThatCameTooLateIsNotUseful) {
  telemetry_.OnEnd({.service_class = kBatch,
                    .tenant = kAcme,
                    .reason = FinishReason::kDeadline,
                    .started = true,
                    .usage = {.output_tokens = 7},
                    .met_deadline = false});
  const Page page = Read();
  EXPECT_EQ(ValueOf(page, "berth_useful_tokens_total{class=\"batch\",tenant=\"acme\"}"), 0.0);
  EXPECT_EQ(ValueOf(page, "berth_requests_total{class=\"batch\",tenant=\"acme\",outcome=\"ok\",reason=\"deadline\"}"),
            1.0);
}

TEST_F(PageTest, TheOldestAgeGrowsBetweenPlans) {
  PlayEverything(&telemetry_, clock_.Now());
  EXPECT_EQ(ValueOf(Read(), "berth_queue_oldest_age_seconds{class=\"batch\"}"), 7.0);
  clock_.Advance(seconds(10));
  EXPECT_EQ(ValueOf(Read(), "berth_queue_oldest_age_seconds{class=\"batch\"}"), 17.0);
}

TEST_F(PageTest, StepsCountByWhatTheyComputed) {
  PlayEverything(&telemetry_, clock_.Now());
  const Page page = Read();
  for (const std::string phase : {"prefill", "decode", "mixed"}) {
    EXPECT_EQ(ValueOf(page, "berth_step_seconds_count{phase=\"" + phase + "\"}"), 1.0);
  }
  EXPECT_EQ(ValueOf(page, "berth_step_host_gap_seconds_count"), 2.0);
}

TEST_F(PageTest, AReloadSaysWhetherItWorkedAndWhatIsInForce) {
  telemetry_.OnConfigReload({.successful = false, .hash = "sha256:00"});
  EXPECT_EQ(ValueOf(Read(), "berth_config_last_reload_successful"), 0.0);
  telemetry_.OnConfigReload({.successful = true, .hash = "sha256:02"});
  const Page page = Read();
  EXPECT_EQ(ValueOf(page, "berth_config_last_reload_successful"), 1.0);
  EXPECT_EQ(ValueOf(page, "berth_config_info{hash=\"sha256:02\"}"), 1.0);
  EXPECT_EQ(ValueOf(page, "berth_config_reloads_total{result=\"failure\"}"), 1.0);
  EXPECT_EQ(ValueOf(page, "berth_config_reloads_total{result=\"success\"}"), 1.0);
}

TEST_F(PageTest, PromisesAreShownWhereTheyAreMade) {
  const Page page = Read();
  EXPECT_EQ(ValueOf(page, "berth_slo_threshold_seconds{class=\"interactive\",slo=\"ttft\"}"), 1.0);
  EXPECT_EQ(ValueOf(page, "berth_slo_threshold_seconds{class=\"interactive\",slo=\"itl\"}"), 0.2);
  EXPECT_EQ(ValueOf(page, "berth_slo_objective_ratio{class=\"interactive\"}"), 0.99);
  EXPECT_FALSE(page.contains("berth_slo_threshold_seconds{class=\"batch\",slo=\"ttft\"}"));
}

TEST_F(PageTest, AStatusThatGrpcDoesNotKnowIsUnknown) {
  telemetry_.OnRpcEnd(0, 99, seconds(1));
  EXPECT_EQ(ValueOf(Read(),
                    "grpc_server_call_duration_seconds_count{grpc_method=\"berth.v1.Inference/Generate\",grpc_status="
                    "\"UNKNOWN\"}"),
            1.0);
}

TEST_F(PageTest, NamesMayHoldAnything) {
  Policy policy = ScenePolicy();
  policy.tenants[1].name = "a\"b\\c\nd";
  telemetry_.OnPolicy({.policy = &policy, .slos = slos_});
  EXPECT_THAT(telemetry_.Page(), testing::HasSubstr("tenant=\"a\\\"b\\\\c\\nd\""));
}

TEST(PageBeforePolicyTest, APageWithoutAnyPolicyIsWellFormed) {
  FakeClock clock;
  const Telemetry telemetry(SceneOptions(), &clock);
  const Page page = ReadPage(telemetry.Page());
  EXPECT_EQ(ValueOf(page, "berth_kv_blocks{state=\"free\"}"), 100.0);
  EXPECT_EQ(ValueOf(page, "berth_pressure_ratio"), 0.0);
}

}  // namespace
}  // namespace berth::test
