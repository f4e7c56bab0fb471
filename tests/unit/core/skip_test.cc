// A simulation may jump over the time in which nothing is decided, and comes to the same.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "fakes/core_fixture.h"
#include "fakes/cost_backend.h"

namespace berth {
namespace {

using test::Ask;
using test::CoreLoop;
using test::Outcome;
using test::Prompt;

constexpr Duration kStep = std::chrono::milliseconds(20);

struct Story {
  std::map<RequestKey, Outcome> ended;
  std::int64_t ticks = 0;
  std::int64_t plans = 0;
};

Story Simulate(bool jumps, std::uint32_t seed) {
  const KvPoolShape pool{64, 4};
  Policy policy = test::TwoClasses();
  policy.classes[0].max_wait = std::chrono::seconds(1);
  test::CostBackend backend(pool);
  CoreLoop loop(pool, policy, &backend);
  loop.set_step_time(kStep);
  std::mt19937 draw(seed);
  std::vector<std::pair<std::int64_t, test::LoopRequest>> arrivals;
  std::int64_t at = 0;
  for (int i = 0; i < 60; ++i) {
    at += draw() % 40;
    const auto prompt = static_cast<std::int64_t>(1 + draw() % 20);
    test::LoopRequest request = Ask(draw() % 2 == 0 ? 0 : 1, Prompt(prompt, 100 * i), 1 + draw() % 80, 1 + draw() % 3);
    if (draw() % 5 == 0) request.deadline = TimePoint(kStep * (at + 5 + draw() % 100));
    arrivals.emplace_back(at, request);
  }
  Story run;
  std::size_t next = 0;
  for (std::int64_t plan = 0;; ++plan) {
    const TimePoint now(kStep * plan);
    for (; next < arrivals.size() && arrivals[next].first <= plan; ++next) loop.Arrive(arrivals[next].second, now);
    const bool worked = loop.Tick(now);
    ++run.ticks;
    if (!worked && next == arrivals.size()) break;
    if (!worked || !jumps) continue;
    const TimePoint until = next < arrivals.size() ? TimePoint(kStep * arrivals[next].first) : TimePoint::max();
    plan += loop.SkipQuiet(now + kStep, kStep, until);
  }
  run.plans = loop.admission().plan_number();
  run.ended = loop.ended();
  return run;
}

TEST(Skip, JumpingOverQuietStepsChangesNothing) {
  std::int64_t ticks = 0;
  std::int64_t ticks_with_jumps = 0;
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    const Story plain = Simulate(false, seed);
    const Story jumped = Simulate(true, seed);
    ASSERT_EQ(plain.ended.size(), jumped.ended.size());
    EXPECT_EQ(plain.plans, jumped.plans);
    for (const auto& [key, outcome] : plain.ended) {
      const Outcome& other = jumped.ended.at(key);
      ASSERT_EQ(outcome.reason, other.reason) << "seed " << seed << " request " << key;
      ASSERT_EQ(outcome.first_start, other.first_start) << "seed " << seed << " request " << key;
      ASSERT_EQ(outcome.first_token, other.first_token) << "seed " << seed << " request " << key;
      ASSERT_EQ(outcome.end, other.end) << "seed " << seed << " request " << key;
      ASSERT_EQ(outcome.preemptions, other.preemptions) << "seed " << seed << " request " << key;
      ASSERT_EQ(outcome.output, other.output) << "seed " << seed << " request " << key;
    }
    ticks += plain.ticks;
    ticks_with_jumps += jumped.ticks;
  }
  EXPECT_LT(ticks_with_jumps, ticks / 3);
}

}  // namespace
}  // namespace berth
