// What a load snapshot says about pressure, lending and debt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakes/metrics_scene.h"
#include "telemetry/load_gauges.h"

namespace berth::test {
namespace {

using testing::ElementsAre;

LoadSnapshot EmptyLoad(std::int64_t pool_blocks = 100) {
  LoadSnapshot load;
  load.free_blocks = pool_blocks;
  load.max_slots = 8;
  load.step_token_budget = 256;
  load.classes.resize(2);
  for (ClassSnapshot& c : load.classes) {
    c.reach_blocks = pool_blocks;
    c.reach_slots = 8;
  }
  return load;
}

TEST(LoadTest, AnIdleServerHasNoPressure) { EXPECT_EQ(PressureOf(EmptyLoad()).highest(), 0.0); }

TEST(LoadTest, PressureIsAdmittedAndQueuedDemandOverCapacity) {
  LoadSnapshot load = EmptyLoad();
  load.free_blocks = 20;
  load.held_blocks = 60;
  load.unspent_blocks = 20;
  load.cached_blocks = 20;
  load.used_slots = 4;
  load.classes[0].waiting_blocks = 70;
  load.classes[1].waiting_slots = 2;
  const Pressure pressure = PressureOf(load);
  EXPECT_DOUBLE_EQ(pressure.kv, 1.5);
  EXPECT_DOUBLE_EQ(pressure.slots, 0.75);
  EXPECT_DOUBLE_EQ(pressure.highest(), 1.5);
}

TEST(LoadTest, ALongPromptShowsAsSaturationAlthoughNothingWaitsAndThePoolIsEmpty) {
  LoadSnapshot load = EmptyLoad();
  load.held_blocks = 1;
  load.free_blocks = 99;
  load.classes[0].running_requests = 2;
  load.classes[0].wanted_step_tokens = load.step_token_budget + 1;  // one prompt without an end, one that decodes
  EXPECT_GT(PressureOf(load).highest(), 1.0);
  EXPECT_GT(PressureOf(load.classes[0], load).compute, 1.0);
  EXPECT_LT(PressureOf(load).kv, 0.1);
}

TEST(LoadTest, AClassWithoutAnyReachHasPressureAsSoonAsItHasDemand) {
  LoadSnapshot load = EmptyLoad();
  load.classes[0] = {.waiting_blocks = 3};
  EXPECT_EQ(PressureOf(load.classes[0], load).kv, 3.0);
}

TEST(LoadTest, BorrowingFromTheCommonSpaceIsLentByNobody) {
  LoadSnapshot load = EmptyLoad();
  load.classes[1].used_blocks = 40;  // 20 beyond its guarantee of 20; 100 - 60 - 20 are common
  EXPECT_THAT(LentBlocks(load, ScenePolicy()), ElementsAre(0, 0));
}

TEST(LoadTest, WhatIsBeyondTheCommonSpaceIsLentByTheIdleGuarantees) {
  LoadSnapshot load = EmptyLoad();
  load.classes[0].used_blocks = 10;
  load.classes[1].used_blocks = 70;  // 50 borrowed, 20 of them common
  EXPECT_THAT(LentBlocks(load, ScenePolicy()), ElementsAre(30, 0));
}

TEST(LoadTest, LentBlocksSumToWhatIsBorrowedBeyondTheCommonSpace) {
  Policy policy = ScenePolicy();
  policy.classes.resize(4);
  policy.classes[2].kv_guarantee_blocks = 10;
  policy.classes[3].kv_guarantee_blocks = 7;
  LoadSnapshot load = EmptyLoad();
  load.classes.resize(4);
  load.classes[1].used_blocks = 51;  // 31 borrowed; 3 are common
  const std::vector<std::int64_t> lent = LentBlocks(load, policy);
  EXPECT_EQ(lent[0] + lent[2] + lent[3], 28);
  EXPECT_EQ(lent[1], 0);
  EXPECT_GT(lent[0], lent[2]);
}

TEST(LoadTest, NothingIsLentBeyondTheLendingLimit) {
  Policy policy = ScenePolicy();
  policy.classes[0].kv_lending_limit_blocks = 5;
  LoadSnapshot load = EmptyLoad();
  load.classes[1].used_blocks = 70;
  EXPECT_THAT(LentBlocks(load, policy), ElementsAre(5, 0));
}

TEST(LoadTest, ARemovedClassHasNoGuaranteeToLend) {
  Policy policy = ScenePolicy();
  policy.classes[0].removed = true;
  LoadSnapshot load = EmptyLoad();
  load.classes[1].used_blocks = 100;
  EXPECT_THAT(LentBlocks(load, policy), ElementsAre(0, 0));
}

}  // namespace
}  // namespace berth::test
