// Many threads tell, reload and read at once; and the calls of every step cost no allocation.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "berth/clock.h"
#include "fakes/allocation_counter.h"
#include "fakes/fake_clock.h"
#include "fakes/metrics_scene.h"
#include "fakes/page_reader.h"
#include "telemetry/telemetry.h"

namespace berth::test {
namespace {

constexpr int kRounds = 200;

TEST(ObserversTest, NothingIsLostWhileThreadsTellReadAndReload) {
  const SteadyClock clock;
  Telemetry telemetry(SceneOptions(), &clock);
  Policy policy = ScenePolicy();
  const std::vector<ClassSlo> slos = SceneSlos();
  telemetry.OnPolicy({.policy = &policy, .slos = slos});

  std::atomic<int> tellers = 3;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) PlayEverything(&telemetry, clock.Now());
      --tellers;
    });
  }
  threads.emplace_back([&] {
    while (tellers > 0) {
      const Page page = ReadPage(telemetry.Page());
      EXPECT_EQ(ValueOf(page, "berth_kv_used_ratio") * 100.0, ValueOf(page, "berth_kv_blocks{state=\"held\"}"));
    }
  });
  threads.emplace_back([&] {
    Policy wider = policy;
    for (int i = 0; tellers > 0; ++i) {
      if (i % 2 == 0) wider.classes.emplace_back().name = "class-" + std::to_string(i % 20);
      if (wider.classes.size() > 12) wider.classes.resize(2);
      telemetry.OnPolicy({.policy = &wider, .slos = slos});
      std::this_thread::yield();
    }
  });
  for (std::thread& thread : threads) thread.join();

  const Page page = ReadPage(telemetry.Page());
  const double told = 3.0 * kRounds;
  EXPECT_EQ(ValueOf(page, "berth_kv_allocation_failures_total"), told);
  EXPECT_EQ(ValueOf(page, "berth_inter_token_latency_seconds_count{class=\"batch\"}"), 2 * told);
  EXPECT_EQ(ValueOf(page, "berth_output_tokens_total{class=\"batch\",tenant=\"default\"}"), 3 * told);
  EXPECT_EQ(ValueOf(page, "berth_e2e_request_latency_seconds_count{class=\"interactive\"}"), 4 * told);
  EXPECT_EQ(telemetry.usage().Since(WallClockNow() - std::chrono::hours(1)).rows.at(0).totals.requests,
            static_cast<std::int64_t>(4 * told));
}

TEST(ObserversTest, TellingStepsTokensAndLoadAllocatesNothing) {
  FakeClock clock;
  Telemetry telemetry(SceneOptions(), &clock);
  const Policy policy = ScenePolicy();
  telemetry.OnPolicy({.policy = &policy});
  LoadSnapshot load;
  load.classes.resize(2);
  load.queued.resize(4);
  telemetry.OnLoad(load);
  const StepPart part{.time = std::chrono::milliseconds(1), .recompute_time = {}, .recomputed_tokens = 1};
  const std::vector<TokenCame> tokens(64);
  const std::int64_t before = Allocations();
  for (int i = 0; i < 100; ++i) {
    load.queued.resize(static_cast<std::size_t>(i % 5));
    telemetry.OnLoad(load);
    telemetry.OnStep({.busy = part.time, .host_gap = Duration(1), .parts = {&part, 1}});
    telemetry.OnTokens(tokens);
    telemetry.OnPreemption(0, PreemptionMode::kSwap);
  }
  EXPECT_EQ(Allocations(), before);
}

TEST(ObserversTest, ASinkThatCountsNothingTakesEverything) {
  NullMetricSink sink;
  const Policy policy = ScenePolicy();
  sink.OnPolicy({.policy = &policy});
  PlayEverything(&sink, TimePoint());
}

}  // namespace
}  // namespace berth::test
