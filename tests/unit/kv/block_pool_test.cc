#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "fakes/allocation_counter.h"

namespace berth {
namespace {

constexpr std::uint64_t kSalt = 5;

std::vector<TokenId> Prompt(int count, TokenId first = 100) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

ReservationSpec Spec(RequestKey request, std::int64_t blocks, std::int64_t shared_blocks, std::int32_t choices = 1,
                     ClassId service_class = 0) {
  return {request, service_class, blocks, shared_blocks, choices};
}

CachedPrefix Find(const BlockPool& pool, std::span<const TokenId> prompt, std::uint64_t salt = kSalt) {
  CachedPrefix cached;
  const std::vector<std::span<const TokenId>> histories{prompt};
  pool.FindCached(salt, static_cast<std::int64_t>(prompt.size()), histories, &cached);
  return cached;
}

// Computes the whole prompt of a one-choice request.
BlockReservation Computed(BlockPool* pool, const ReservationSpec& spec, std::span<const TokenId> prompt) {
  auto reservation = pool->Reserve(spec, kSalt, Find(*pool, prompt));
  EXPECT_TRUE(reservation.has_value());
  reservation->Cover(0, static_cast<std::int64_t>(prompt.size()));
  reservation->MarkComputed(0, prompt, static_cast<std::int64_t>(prompt.size()));
  return std::move(*reservation);
}

TEST(BlockPool, PromisesNoMoreThanThereIs) {
  BlockPool pool({10, 4});
  auto a = pool.Reserve(Spec(1, 6, 0), kSalt);
  ASSERT_TRUE(a.has_value());
  EXPECT_FALSE(pool.Reserve(Spec(2, 5, 0), kSalt).has_value());
  auto b = pool.Reserve(Spec(3, 4, 0), kSalt);
  ASSERT_TRUE(b.has_value());
  EXPECT_EQ(pool.available_blocks(), 0);
  a->Cover(0, 24);
  EXPECT_EQ(pool.available_blocks(), 0);
  EXPECT_EQ(pool.live_blocks(), 6);
  EXPECT_EQ(pool.unspent_blocks(), 4);
  a.reset();
  EXPECT_EQ(pool.available_blocks(), 6);
}

// Two requests that hold half the pool each and both need more cannot exist: the second half was promised to one of
// them.
TEST(BlockPool, TwoHalvesThatBothNeedMoreCannotBeReserved) {
  BlockPool pool({10, 1});
  auto a = pool.Reserve(Spec(1, 6, 0), kSalt);
  a->Cover(0, 5);
  EXPECT_FALSE(pool.Reserve(Spec(2, 6, 0), kSalt).has_value());
  a->Cover(0, 6);
}

TEST(BlockPoolDeathTest, TakingBeyondTheReservationCrashes) {
  BlockPool pool({10, 4});
  auto a = pool.Reserve(Spec(1, 2, 0), kSalt);
  a->Cover(0, 8);
  EXPECT_DEATH(a->Cover(0, 9), "more blocks than were reserved");
}

TEST(BlockPoolDeathTest, AReservationThatOutlivesItsPoolCrashes) {
  const auto outlive = [] {
    auto pool = std::make_unique<BlockPool>(KvPoolShape{4, 4});
    const auto leaked = pool->Reserve(Spec(1, 2, 0), kSalt);
    pool.reset();
  };
  EXPECT_DEATH(outlive(), "outlived its pool");
}

TEST(BlockPool, MovingAReservationMovesItsBlocksOnce) {
  BlockPool pool({4, 4});
  auto a = pool.Reserve(Spec(1, 2, 0), kSalt);
  a->Cover(0, 5);
  BlockReservation moved = std::move(*a);
  a.reset();
  EXPECT_EQ(pool.live_blocks(), 2);
  moved = BlockReservation();
  EXPECT_EQ(pool.live_blocks(), 0);
}

TEST(BlockPool, AComputedPrefixIsFoundUpToTheBlockBeforeTheLastToken) {
  BlockPool pool({16, 4});
  const auto prompt = Prompt(12);
  const auto a = Computed(&pool, Spec(1, 4, 3), prompt);
  EXPECT_EQ(Find(pool, prompt).shared.size(), 2U) << "the last prompt token is always computed";
  EXPECT_EQ(Find(pool, Prompt(13)).shared.size(), 3U);
  EXPECT_EQ(Find(pool, Prompt(13), kSalt + 1).size(), 0) << "another tenant";
  EXPECT_EQ(Find(pool, Prompt(13, 101)).size(), 0);
}

TEST(BlockPool, ABlockIsFindableOnlyAfterItsStepSucceeded) {
  BlockPool pool({16, 4});
  const auto prompt = Prompt(13);
  auto a = pool.Reserve(Spec(1, 4, 3), kSalt);
  a->Cover(0, 13);
  EXPECT_EQ(Find(pool, prompt).size(), 0);
  a->MarkComputed(0, prompt, 7);
  EXPECT_EQ(Find(pool, prompt).shared.size(), 1U) << "a partial block never enters the index";
}

TEST(BlockPool, SharedBlocksAreChargedOnceToThePoolAndFullyToEachClass) {
  BlockPool pool({16, 4}, 2);
  const auto prompt = Prompt(13);
  auto a = std::make_optional(Computed(&pool, Spec(1, 4, 3, 1, 0), prompt));
  const auto b = Computed(&pool, Spec(2, 4, 3, 1, 1), prompt);
  EXPECT_EQ(pool.live_blocks(), 5);
  EXPECT_EQ(pool.used_blocks(0), 4);
  EXPECT_EQ(pool.used_blocks(1), 4);
  EXPECT_EQ(pool.SoleHolder(b.shared_blocks()[0]), kNoRequest);
  a.reset();  // the first owner ends: the other's charge is unchanged
  EXPECT_EQ(pool.used_blocks(0), 0);
  EXPECT_EQ(pool.used_blocks(1), 4);
  EXPECT_EQ(pool.live_blocks(), 4);
  EXPECT_EQ(pool.SoleHolder(b.shared_blocks()[0]), 2);
}

TEST(BlockPool, IdleCachedBlocksCountAsFreeAndAPoolSizedRequestGetsThem) {
  BlockPool pool({8, 4});
  const auto prompt = Prompt(29);
  { const auto a = Computed(&pool, Spec(1, 8, 7), prompt); }
  EXPECT_EQ(pool.available_blocks(), 8);
  EXPECT_EQ(Find(pool, prompt).shared.size(), 7U);
  auto b = pool.Reserve(Spec(2, 8, 0), kSalt);
  ASSERT_TRUE(b.has_value());
  b->Cover(0, 32);
  EXPECT_EQ(pool.cached_blocks(), 0) << "a reused block is forgotten";
}

TEST(BlockPool, CountsWhatIsFreeAndCanBeFound) {
  BlockPool pool({10, 4});
  const std::vector<TokenId> prompt = Prompt(13);
  {
    const auto a = Computed(&pool, Spec(1, 4, 3), prompt);
    EXPECT_EQ(pool.idle_cached_blocks(), 0) << "held";
  }
  EXPECT_EQ(pool.idle_cached_blocks(), 3);
  {
    const auto b = Computed(&pool, Spec(2, 4, 3), prompt);
    EXPECT_EQ(pool.idle_cached_blocks(), 0) << "held again";
  }
  {
    auto c = pool.Reserve(Spec(3, 8, 0), kSalt);
    c->Cover(0, 32);
    EXPECT_EQ(pool.idle_cached_blocks(), 2) << "one was reused";
  }
  EXPECT_EQ(pool.idle_cached_blocks(), 2);
  pool.CheckBook();
}

TEST(BlockPool, APrefixOutlivesItsContinuations) {
  BlockPool pool({8, 4});
  const auto prompt = Prompt(29);
  { const auto a = Computed(&pool, Spec(1, 8, 7), prompt); }
  const auto b = Computed(&pool, Spec(2, 3, 0), Prompt(12, 900));
  EXPECT_EQ(Find(pool, prompt).shared.size(), 5U);
}

TEST(BlockPool, ChoicesShareThePromptsFullBlocksAndOwnTheRest) {
  BlockPool pool({32, 4});
  const auto prompt = Prompt(10);
  // P = 10, O = 7, n = 3: 2 + 3 · (4 - 2) blocks.
  auto group = pool.Reserve(Spec(1, 8, 2, 3), kSalt);
  group->Cover(0, 10);
  group->MarkComputed(0, prompt, 10);
  for (std::int32_t q = 1; q < 3; ++q) group->Cover(q, 11);
  EXPECT_EQ(group->held(), 5);
  EXPECT_EQ(group->shared_blocks().size(), 2U);
  EXPECT_NE(group->own_blocks(0)[0], group->own_blocks(1)[0]);
  for (std::int32_t q = 0; q < 3; ++q) group->Cover(q, 16);
  EXPECT_EQ(group->held(), group->reserved());

  std::vector<BlockId> released;
  group->EndChoice(1, 6, &released);
  EXPECT_EQ(released.size(), 2U);
  EXPECT_EQ(group->reserved(), 6);
  EXPECT_EQ(group->held(), 6);
  EXPECT_EQ(pool.available_blocks(), 26);
  std::vector<BlockId> table;
  group->AppendTable(2, &table);
  EXPECT_EQ(table.size(), 4U);
}

TEST(BlockPool, EqualContinuationsOfOneGroupNeverShareABlock) {
  BlockPool pool({32, 4});
  std::vector<TokenId> history = Prompt(4);
  history.resize(13, 7);
  {
    auto group = pool.Reserve(Spec(1, 7, 1, 2), kSalt);
    for (std::int32_t q = 0; q < 2; ++q) {
      group->Cover(q, 12);
      group->MarkComputed(q, history, 12);
    }
  }
  CachedPrefix cached;
  const std::vector<std::span<const TokenId>> histories{history, history};
  pool.FindCached(kSalt, 4, histories, &cached);
  EXPECT_EQ(cached.shared.size(), 1U);
  EXPECT_EQ(cached.choices[0].size(), 2U);
  EXPECT_EQ(cached.choices[1].size(), 0U);
  const auto resumed = pool.Reserve(Spec(1, 7, 1, 2), kSalt, cached);
  EXPECT_EQ(resumed->held(), 3);
}

TEST(BlockPool, ClassesCanBeAddedWhileBlocksAreHeld) {
  BlockPool pool({16, 4}, 1);
  const auto prompt = Prompt(13);
  const auto a = Computed(&pool, Spec(1, 4, 3), prompt);
  pool.GrowClasses(3);
  const auto b = Computed(&pool, Spec(2, 4, 3, 1, 2), prompt);
  EXPECT_EQ(pool.used_blocks(0), 4);
  EXPECT_EQ(pool.used_blocks(2), 4);
  pool.CheckBook();
}

TEST(BlockPool, DecodingAllocatesNothing) {
  BlockPool pool({64, 4});
  std::vector<TokenId> history = Prompt(200);
  auto a = pool.Reserve(Spec(1, 50, 2, 1), kSalt);
  a->Cover(0, 9);
  a->MarkComputed(0, history, 9);
  const std::int64_t before = test::Allocations();
  for (std::int64_t stored = 10; stored <= 200; ++stored) {
    a->Cover(0, stored);
    a->MarkComputed(0, history, stored);
  }
  EXPECT_EQ(test::Allocations(), before);
  EXPECT_EQ(a->held(), 50);
}

}  // namespace
}  // namespace berth
