// How requests end that do not simply complete: admission, scheduler and block pool together.
#include <gtest/gtest.h>

#include <set>

#include "fakes/core_fixture.h"

namespace berth {
namespace {

using test::Ask;
using test::At;
using test::Prompt;
using test::TwoClasses;

class Ending : public test::CoreTest {};

TEST_F(Ending, AQueuedRequestWhoseClientIsGoneNeverRuns) {
  Use({64, 4}, TwoClasses());
  Arrive(Ask(0, Prompt(100), 40));  // 35 of the class's 40 blocks
  Tick();
  const RequestKey gone = Arrive(Ask(0, Prompt(40, 500), 20));
  Tick();
  loop->Cancel(gone);
  Tick();
  ASSERT_TRUE(loop->ended().contains(gone));
  EXPECT_EQ(loop->ended().at(gone).reason, RefusalReason::kCancelledByClient);
  EXPECT_FALSE(loop->ended().at(gone).first_start.has_value());
  const std::int64_t computed = loop->scheduler().computed_tokens();
  EXPECT_EQ(computed, 100 + 1) << "nothing of it";
  Drain();
}

TEST_F(Ending, AQueuedRequestThatTimesOutEndsWithItsReasonAndNoOutput) {
  Policy policy = TwoClasses();
  policy.classes[0].max_wait = std::chrono::milliseconds(5);
  Use({64, 4}, policy);
  Arrive(Ask(0, Prompt(100), 40));
  Tick();
  const RequestKey waits = Arrive(Ask(0, Prompt(40, 500), 20));
  for (int i = 0; i < 6; ++i) Tick();
  ASSERT_TRUE(loop->ended().contains(waits));
  EXPECT_EQ(loop->ended().at(waits).reason, RefusalReason::kQueueTimeout);
  EXPECT_TRUE(loop->ended().at(waits).output[0].empty());
  Drain();
}

TEST_F(Ending, ADrainFinishesTheOldAndRefusesTheNew) {
  Use({64, 4}, TwoClasses());
  const RequestKey running = Arrive(Ask(0, Prompt(100), 40));
  Tick();
  const RequestKey queued = Arrive(Ask(0, Prompt(40, 500), 20));
  loop->desk().StartDraining();
  const RequestKey late = Arrive(Ask(0, Prompt(4), 2));
  ASSERT_TRUE(loop->ended().contains(late));
  EXPECT_EQ(loop->ended().at(late).reason, RefusalReason::kDraining);
  Drain();
  for (const RequestKey key : {running, queued}) EXPECT_FALSE(loop->ended().at(key).reason.has_value());
}

TEST_F(Ending, CancellingOneOfManyNeverEndsAnother) {
  Use({64, 4}, TwoClasses());
  std::set<RequestKey> live;
  for (int i = 0; i < 8; ++i) live.insert(Arrive(Ask(i % 2, Prompt(6, 100 * i), 25)));
  while (!live.empty()) {
    Tick();
    const RequestKey key = *live.begin();
    loop->Cancel(key);
    live.erase(key);
    Tick();
    EXPECT_EQ(loop->ended().at(key).reason, RefusalReason::kCancelledByClient);
    for (const RequestKey other : live) EXPECT_FALSE(loop->ended().contains(other));
  }
  Drain();
}

TEST_F(Ending, AFaultLeavesNothingOfTheStepToBeFound) {
  Use({64, 4}, TwoClasses());
  Arrive(Ask(0, Prompt(30), 4));
  backend->FailNextStep();
  Tick();
  Tick();
  EXPECT_EQ(loop->live(), 0);
  EXPECT_EQ(loop->pool().available_blocks(), 64);
  EXPECT_EQ(loop->pool().cached_blocks(), 0) << "blocks of a failed step may hold anything";
  Arrive(Ask(0, Prompt(30), 4));
  Drain();
}

TEST_F(Ending, AHeldClassRestsAndGoesOnWhereItWas) {
  Policy policy = TwoClasses();
  Use({64, 4}, policy);
  const RequestKey running = Arrive(Ask(0, Prompt(100), 40));
  Tick();
  const RequestKey queued = Arrive(Ask(0, Prompt(40, 500), 20));
  policy.classes[0].stop = ClassStop::kHold;
  loop->SetPolicy(policy, At(now));
  while (!loop->ended().contains(running)) Tick();
  for (int i = 0; i < 5; ++i) Tick();
  EXPECT_EQ(loop->scheduler().Blocks(queued), nullptr) << "all is free, and it waits";
  policy.classes[0].stop = ClassStop::kNone;
  loop->SetPolicy(policy, At(now));
  Drain();
  EXPECT_FALSE(loop->ended().at(queued).reason.has_value());
}

}  // namespace
}  // namespace berth
