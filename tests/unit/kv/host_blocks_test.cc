#include "kv/host_blocks.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <utility>

#include "kv/block_pool.h"

namespace berth {
namespace {

TEST(HostBlocks, EveryBlockHasOneOwnerAtATimeAndReturnsWithIt) {
  HostBlocks book(5);
  std::optional<HostHolding> a = book.Take(3);
  std::optional<HostHolding> b = book.Take(2);
  ASSERT_TRUE(a.has_value() && b.has_value());
  std::set<BlockId> ids(a->blocks().begin(), a->blocks().end());
  ids.insert(b->blocks().begin(), b->blocks().end());
  EXPECT_EQ(ids, (std::set<BlockId>{0, 1, 2, 3, 4}));
  EXPECT_EQ(book.used(), 5);
  a.reset();
  EXPECT_EQ(book.used(), 2);
  book.CheckBook();
  EXPECT_TRUE(book.Take(3).has_value());
}

TEST(HostBlocks, MoreThanIsFreeIsNothingAndChangesNothing) {
  HostBlocks book(4);
  const std::optional<HostHolding> held = book.Take(2);
  EXPECT_FALSE(book.Take(3).has_value());
  EXPECT_EQ(book.used(), 2);
  EXPECT_TRUE(HostBlocks(0).Take(0).has_value());
  EXPECT_FALSE(HostBlocks(0).Take(1).has_value());
}

TEST(HostBlocks, AHoldingThatIsMovedOverReturnsWhatItHad) {
  HostBlocks book(4);
  HostHolding a = *book.Take(1);
  HostHolding b = *book.Take(3);
  a = std::move(b);
  EXPECT_EQ(book.used(), 3);
  EXPECT_EQ(a.blocks().size(), 3U);
  const HostHolding c = std::move(a);
  EXPECT_EQ(book.used(), 3);
}

TEST(HostBlocksDeathTest, ALeakEndsTheProcess) {
  const auto leak = [] {
    HostHolding outlives;
    BlockPool pool({4, 2, 4});
    outlives = *pool.host().Take(1);
  };
  EXPECT_DEATH(leak(), "were not returned");
}

}  // namespace
}  // namespace berth
