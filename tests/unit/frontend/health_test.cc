// The health table, row by row: what makes the server, its thread and a class well or not.
#include "frontend/health.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "frontend/health_service.h"

namespace berth {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

class HealthTest : public testing::Test {
 protected:
  HealthTest() {
    for (const char* name : {"gold", "iron"}) policy_.classes.emplace_back().name = name;
    facts_.now = TimePoint(hours(100));
    facts_.load.classes.resize(2);
    facts_.signs.progress.assign(2, facts_.now);
  }

  Health Judge() const { return JudgeHealth(facts_, policy_, HealthLimits()); }
  ServiceHealth Services() const { return ServicesOf(Judge()); }
  // As if the last progress of the class was so long ago.
  void Stall(std::size_t c, Duration age) { facts_.signs.progress[c] = facts_.now - age; }

  Policy policy_;
  HealthFacts facts_;
};

constexpr Duration kTooLong = seconds(31);

TEST_F(HealthTest, AnIdleServerServesHoweverLongItHasBeenIdle) {
  Stall(0, hours(50));
  Stall(1, hours(50));
  EXPECT_EQ(Judge().state, ServerState::kServing);
  EXPECT_EQ(Judge().why, "");
  EXPECT_EQ(Services(), (ServiceHealth{{"", true},
                                       {"readiness", true},
                                       {"liveness", true},
                                       {"berth.v1.Inference", true},
                                       {"berth.class.gold", true},
                                       {"berth.class.iron", true}}));
}

TEST_F(HealthTest, AFullServerServes) {
  facts_.load.classes[0].running_requests = 64;
  facts_.load.classes[0].queued_requests = 10'000;
  facts_.load.classes[1].queued_requests = 10'000;
  facts_.load.classes[1].parked_requests = 5;
  // Nothing of iron gets on, as gold has it all.
  Stall(1, hours(1));
  for (const auto& [name, serves] : Services()) EXPECT_TRUE(serves) << name;
}

TEST_F(HealthTest, ADrainingServerIsNotReadyAndAlive) {
  facts_.draining = true;
  EXPECT_EQ(Judge().state, ServerState::kDraining);
  for (const auto& [name, serves] : Services()) EXPECT_EQ(serves, name == "liveness") << name;
}

TEST_F(HealthTest, ABackendFaultMakesItNotReadyUntilAStepSucceeds) {
  facts_.signs.faulted = true;
  EXPECT_EQ(Judge().state, ServerState::kBackendFault);
  EXPECT_NE(Judge().why, "");
  for (const auto& [name, serves] : Services()) EXPECT_EQ(serves, name == "liveness") << name;
}

TEST_F(HealthTest, WorkThatNothingComesOfForTooLongIsNoProgress) {
  facts_.load.classes[0].running_requests = 1;
  Stall(0, seconds(29));
  Stall(1, hours(1));
  EXPECT_EQ(Judge().state, ServerState::kServing);
  Stall(0, kTooLong);
  EXPECT_EQ(Judge().state, ServerState::kNoProgress);
  EXPECT_EQ(Judge().why, "requests are there, and none got on for 31 s");
  for (const auto& [name, serves] : Services()) EXPECT_EQ(serves, name == "liveness") << name;
}

TEST_F(HealthTest, WhatWaitsThoughNothingRunsIsNoProgressUnlessItsClassIsOnHold) {
  facts_.load.classes[1].queued_requests = 1;
  Stall(0, kTooLong);
  Stall(1, kTooLong);
  EXPECT_EQ(Judge().state, ServerState::kNoProgress);
  policy_.classes[1].stop = ClassStop::kHold;
  EXPECT_EQ(Judge().state, ServerState::kServing);
}

TEST_F(HealthTest, ALongStepThatWasPredictedToBeLongIsNoFault) {
  facts_.load.classes[0].running_requests = 1;
  facts_.signs.in_step_since = facts_.now - minutes(3);
  facts_.signs.predicted_step = seconds(20);
  Stall(0, minutes(3));
  Stall(1, minutes(3));
  EXPECT_EQ(Judge().state, ServerState::kServing);
  EXPECT_TRUE(Judge().live);
}

TEST_F(HealthTest, AStepThatLastsAbsurdlyLongIsAStuckThread) {
  facts_.signs.in_step_since = facts_.now - minutes(1);
  EXPECT_TRUE(Judge().live);
  facts_.signs.in_step_since = facts_.now - seconds(121);
  EXPECT_FALSE(Judge().live);
  EXPECT_EQ(Judge().why, "the backend has been in one step for 121 s: restart the server");
  for (const auto& [name, serves] : Services()) EXPECT_FALSE(serves) << name;
  facts_.signs.predicted_step = seconds(2);
  EXPECT_TRUE(Judge().live);
}

TEST_F(HealthTest, ATurnThatDoesNotEndIsAStuckThread) {
  facts_.signs.in_turn_since = facts_.now - seconds(29);
  EXPECT_TRUE(Judge().live);
  facts_.signs.in_turn_since = facts_.now - kTooLong;
  EXPECT_FALSE(Judge().live);
  EXPECT_FALSE(Judge().ready());
}

TEST_F(HealthTest, AClassThatIsStoppedDoesNotServeAndTheServerDoes) {
  for (const ClassStop stop : {ClassStop::kHold, ClassStop::kDrain}) {
    policy_.classes[1].stop = stop;
    EXPECT_TRUE(Judge().ready());
    EXPECT_TRUE(Services().at("berth.class.gold"));
    EXPECT_FALSE(Services().at("berth.class.iron"));
  }
}

TEST_F(HealthTest, AClassWhoseRequestsRunAndDoNotGetOnDoesNotServeAndTheServerDoes) {
  facts_.load.classes[0].running_requests = 1;
  facts_.load.classes[1].running_requests = 1;
  Stall(1, kTooLong);
  EXPECT_TRUE(Judge().ready());
  EXPECT_TRUE(Services().at("berth.class.gold"));
  EXPECT_FALSE(Services().at("berth.class.iron"));
}

TEST_F(HealthTest, AClassWhoseGuaranteeIsNotMetForTooLongDoesNotServe) {
  facts_.load.classes[0].running_requests = 1;
  facts_.load.classes[1].queued_requests = 1;
  Stall(1, kTooLong);
  EXPECT_TRUE(Services().at("berth.class.iron")) << "it waits for room that is not its own";
  facts_.load.classes[1].guarantee_unmet = true;
  EXPECT_FALSE(Services().at("berth.class.iron"));
  EXPECT_TRUE(Judge().ready());
}

TEST_F(HealthTest, AClassThatIsGoneIsNotKnown) {
  policy_.classes[1].removed = true;
  EXPECT_FALSE(Services().contains("berth.class.iron"));
}

}  // namespace
}  // namespace berth
