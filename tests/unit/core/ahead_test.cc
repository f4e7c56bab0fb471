// Whether a step is submitted ahead of the one before changes no request's output.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fakes/core_fixture.h"

namespace berth {
namespace {

using test::Ask;
using test::At;
using test::LoopRequest;
using test::Outcome;
using test::Prompt;
using test::TwoClasses;

struct Totals {
  std::map<RequestKey, Outcome> ended;
  std::int64_t preemptions = 0;
  std::int64_t swapped_in = 0;
};

class Ahead : public test::CoreTest {
 protected:
  // Two classes that take blocks from each other; groups, prefixes in common, choices that stop by themselves at once
  // or are told so late, and faults of the backend. Nothing is cut by time.
  Totals Run(std::uint64_t seed, std::int32_t max_steps_in_flight, bool faults) {
    const KvPoolShape shape{64, 4, 32};
    Use(shape, TwoClasses(48), max_steps_in_flight);
    // Copies cost nothing, and nothing else is learned.
    loop = std::make_unique<test::CoreLoop>(shape, TwoClasses(48), backend.get(),
                                            StepCostModel({0.001, 0.001, 0.001, 0, 0, 0}));
    backend->set_step_time([](const StepPlan&) { return Duration(0); });
    asked.clear();
    now = 0;
    loop->set_step_time(std::chrono::milliseconds(1));
    loop->set_stop_rule([](RequestKey key, std::int32_t choice, const std::vector<TokenId>& output) {
      return output.back() % 17 == (key + choice) % 17;
    });
    loop->set_stop_lag(seed % 3);
    std::minstd_rand random(static_cast<std::uint32_t>(seed));
    const auto draw = [&](std::uint32_t least, std::uint32_t most) { return least + random() % (most - least + 1); };
    for (int i = 0; i < 300; ++i) {
      if (faults && i % 60 == 59) backend->FailNextStep();
      if (draw(0, 3) == 0) {
        const auto c = static_cast<ClassId>(draw(0, 1));
        LoopRequest request = Ask(c, Prompt(draw(1, 50), static_cast<TokenId>(100 * draw(0, 3))), draw(1, 40),
                                  draw(0, 3) == 0 ? 2 : 1, i);
        if (draw(0, 9) == 0) request.prompt_logprobs = 0;
        Arrive(request);
      }
      Tick();
    }
    for (int i = 0; i < 10000 && loop->live() > 0; ++i) Tick();
    Tick();  // what is in flight behind the last request
    EXPECT_EQ(loop->live(), 0);
    EXPECT_EQ(loop->scheduler().steps_in_flight(), 0);
    EXPECT_EQ(loop->pool().available_blocks(), 64);
    EXPECT_EQ(loop->pool().host().used(), 0);
    EXPECT_EQ(backend->fault(), "");
    Totals totals{loop->ended(), 0, loop->scheduler().swapped_in_blocks()};
    for (const auto& [key, outcome] : totals.ended) totals.preemptions += outcome.preemptions;
    return totals;
  }
};

// Up to where a choice stops that is told late: that depends on the steps.
std::vector<TokenId> UpToItsStop(RequestKey key, std::int32_t choice, const std::vector<TokenId>& output) {
  std::vector<TokenId> until;
  for (const TokenId token : output) {
    until.push_back(token);
    if (token % 17 == (key + choice) % 17) break;
  }
  return until;
}

TEST_F(Ahead, EveryOutputIsTheSame) {
  std::int64_t preemptions = 0;
  std::int64_t swapped_in = 0;
  std::int64_t compared = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Totals one = Run(seed, 1, false);
    const Totals two = Run(seed, 2, false);
    ASSERT_EQ(one.ended.size(), two.ended.size());
    preemptions += two.preemptions;
    swapped_in += two.swapped_in;
    for (const auto& [key, outcome] : one.ended) {
      const Outcome& other = two.ended.at(key);
      if (outcome.reason.has_value() || other.reason.has_value()) continue;  // refused: the queue was full
      ++compared;
      for (std::size_t q = 0; q < outcome.output.size(); ++q) {
        const auto choice = static_cast<std::int32_t>(q);
        if (seed % 3 == 0) {
          ASSERT_EQ(outcome.output[q], other.output[q]) << "seed " << seed << " request " << key << " choice " << q;
        }
        ASSERT_EQ(UpToItsStop(key, choice, outcome.output[q]), UpToItsStop(key, choice, other.output[q]));
      }
    }
  }
  EXPECT_GT(compared, 1000);
  EXPECT_GT(preemptions, 50);
  EXPECT_GT(swapped_in, 0);
}

TEST_F(Ahead, AFaultEndsWhatItTouchesOnceAndNothingElse) {
  std::int64_t faults = 0;
  for (std::uint64_t seed = 100; seed < 130; ++seed) {
    const Totals two = Run(seed, 2, true);
    for (const auto& [key, outcome] : two.ended) {
      faults += outcome.reason == RefusalReason::kBackendFault ? 1 : 0;
      for (std::size_t q = 0; q < outcome.output.size(); ++q) {
        const std::vector<TokenId> alone = test::Alone(asked[key])[q];
        ASSERT_TRUE(outcome.output[q].size() <= alone.size());
        EXPECT_TRUE(std::equal(outcome.output[q].begin(), outcome.output[q].end(), alone.begin()));
      }
    }
  }
  EXPECT_GT(faults, 30);
}

}  // namespace
}  // namespace berth
