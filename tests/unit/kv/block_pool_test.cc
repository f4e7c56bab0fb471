#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace berth {
namespace {

constexpr KvPoolShape kShape = {.num_blocks = 10, .block_tokens = 4};

std::vector<BlockId> Table(const BlockReservation& reservation) {
  return {reservation.block_table().begin(), reservation.block_table().end()};
}

TEST(BlockPool, ReservesNoMoreThanIsFreeAndUnpromised) {
  BlockPool pool(kShape);
  auto a = pool.Reserve(7);
  ASSERT_TRUE(a.has_value());
  EXPECT_EQ(pool.available_blocks(), 3);
  EXPECT_EQ(pool.unspent_blocks(), 7);
  EXPECT_EQ(pool.held_blocks(), 0);
  EXPECT_FALSE(pool.Reserve(4).has_value());
  EXPECT_EQ(pool.available_blocks(), 3) << "a refusal must change nothing";
  EXPECT_TRUE(pool.Reserve(3).has_value());
  EXPECT_EQ(pool.available_blocks(), 3) << "a reservation that was dropped comes back";
}

TEST(BlockPool, AnEmptyReservationIsPossibleEvenInAFullPool) {
  BlockPool pool(kShape);
  const auto all = pool.Reserve(10);
  const auto none = pool.Reserve(0);
  ASSERT_TRUE(none.has_value());
  EXPECT_EQ(none->reserved(), 0);
  EXPECT_TRUE(none->block_table().empty());
}

TEST(BlockPool, BlocksAreTakenOnlyAsTokensAreCovered) {
  BlockPool pool(kShape);
  auto r = pool.Reserve(3);
  r->CoverTokens(0);
  EXPECT_EQ(r->held(), 0);
  r->CoverTokens(1);
  EXPECT_EQ(r->held(), 1);
  r->CoverTokens(4);
  EXPECT_EQ(r->held(), 1);
  r->CoverTokens(5);
  EXPECT_EQ(r->held(), 2);
  EXPECT_EQ(pool.held_blocks(), 2);
  EXPECT_EQ(pool.unspent_blocks(), 1);
  EXPECT_EQ(pool.available_blocks(), 7) << "taking a promised block leaves the others' room as it was";
  r->CoverTokens(12);
  EXPECT_EQ(r->held(), 3);
  EXPECT_EQ(pool.unspent_blocks(), 0);
}

TEST(BlockPool, ATableNeverShrinksOrReorders) {
  BlockPool pool(kShape);
  auto r = pool.Reserve(3);
  r->CoverTokens(8);
  const std::vector<BlockId> before = Table(*r);
  r->CoverTokens(1);
  EXPECT_EQ(Table(*r), before);
  r->CoverTokens(12);
  ASSERT_EQ(r->held(), 3);
  const std::vector<BlockId> after = Table(*r);
  EXPECT_EQ(std::vector<BlockId>(after.begin(), after.begin() + 2), before);
}

TEST(BlockPool, EveryLiveBlockHasOneHolderAndAnIdOfThePool) {
  BlockPool pool(kShape);
  auto a = pool.Reserve(5);
  auto b = pool.Reserve(5);
  a->CoverTokens(20);
  b->CoverTokens(20);
  std::set<BlockId> ids;
  for (const auto* r : {&*a, &*b}) ids.insert(r->block_table().begin(), r->block_table().end());
  EXPECT_EQ(ids.size(), 10U);
  EXPECT_EQ(*ids.begin(), 0);
  EXPECT_EQ(*ids.rbegin(), 9);
}

TEST(BlockPool, WhatCameBackLastGoesOutFirst) {
  BlockPool pool(kShape);
  auto a = pool.Reserve(3);
  a->CoverTokens(12);
  const std::vector<BlockId> warm = Table(*a);
  a.reset();
  auto b = pool.Reserve(4);
  b->CoverTokens(12);
  EXPECT_EQ(Table(*b), warm);
}

TEST(BlockReservation, MovesWithItsBlocksAndLeavesNothingBehind) {
  BlockPool pool(kShape);
  auto first = pool.Reserve(4);
  first->CoverTokens(6);
  const std::vector<BlockId> table = Table(*first);
  BlockReservation moved = std::move(*first);
  EXPECT_EQ(Table(moved), table);
  EXPECT_EQ(moved.reserved(), 4);
  EXPECT_EQ(first->reserved(), 0);
  EXPECT_EQ(first->held(), 0);
  first.reset();
  EXPECT_EQ(pool.held_blocks(), 2);
}

TEST(BlockReservation, GivesItsBlocksBackWhenMovedOver) {
  BlockPool pool(kShape);
  auto a = pool.Reserve(4);
  a->CoverTokens(16);
  auto b = pool.Reserve(2);
  b->CoverTokens(1);
  *a = std::move(*b);
  EXPECT_EQ(pool.held_blocks(), 1);
  EXPECT_EQ(pool.unspent_blocks(), 1);
  EXPECT_EQ(a->reserved(), 2);
  *a = BlockReservation();
  EXPECT_EQ(pool.available_blocks(), 10);
}

TEST(BlockPool, TheBookAddsUpThroughRandomLives) {
  std::mt19937 random(11);
  BlockPool pool({.num_blocks = 50, .block_tokens = 3});
  struct Life {
    BlockReservation blocks;
    std::int64_t tokens = 0;
  };
  std::vector<Life> live;
  for (int round = 0; round < 20'000; ++round) {
    const auto action = random() % 4;
    if (action == 0) {
      const auto wanted = static_cast<std::int64_t>(random() % 20);
      const std::int64_t available = pool.available_blocks();
      auto r = pool.Reserve(wanted);
      ASSERT_EQ(r.has_value(), wanted <= available);
      if (r.has_value()) live.push_back({std::move(*r)});
    } else if (!live.empty() && action == 1) {
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(random() % live.size()));
    } else if (!live.empty()) {
      Life& life = live[random() % live.size()];
      if (life.tokens < life.blocks.reserved() * 3) life.blocks.CoverTokens(++life.tokens);
    }
    std::int64_t held = 0;
    std::int64_t unspent = 0;
    std::set<BlockId> ids;
    for (const Life& life : live) {
      held += life.blocks.held();
      unspent += life.blocks.reserved() - life.blocks.held();
      ids.insert(life.blocks.block_table().begin(), life.blocks.block_table().end());
    }
    ASSERT_EQ(pool.held_blocks(), held);
    ASSERT_EQ(static_cast<std::int64_t>(ids.size()), held) << "a block has two holders";
    ASSERT_EQ(pool.unspent_blocks(), unspent);
    ASSERT_EQ(pool.available_blocks(), 50 - held - unspent);
  }
}

TEST(BlockPoolDeathTest, TakingMoreThanWasReservedIsABug) {
  BlockPool pool(kShape);
  auto r = pool.Reserve(2);
  EXPECT_DEATH(r->CoverTokens(9), "9 tokens need 3 blocks, 2 are reserved");
  BlockReservation empty;
  EXPECT_DEATH(empty.CoverTokens(1), "without a pool");
}

TEST(BlockPoolDeathTest, ALeakedBlockIsFoundWhenThePoolEnds) {
  EXPECT_DEATH(
      {
        std::optional<BlockReservation> outlives;
        BlockPool pool(kShape);
        outlives = pool.Reserve(2);
        outlives->CoverTokens(1);
      },
      "1 blocks held and 1 promised");
}

TEST(BlockPoolDeathTest, ANegativeReservationIsABug) {
  BlockPool pool(kShape);
  EXPECT_DEATH(pool.Reserve(-1), "blocks >= 0");
}

}  // namespace
}  // namespace berth
