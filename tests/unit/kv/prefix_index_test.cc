#include "kv/prefix_index.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <vector>

namespace berth {
namespace {

std::vector<TokenId> Tokens(TokenId first, int count) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(PrefixIndex, SameTokensAfterAnotherPrefixOrTenantAreAnotherContent) {
  PrefixIndex index({8, 4});
  const auto a = Tokens(10, 4);
  const auto b = Tokens(20, 4);
  const PrefixDigest root = RootDigest(1);
  const PrefixDigest after_a = ExtendDigest(ExtendDigest(root, a), b);
  ASSERT_TRUE(index.Insert(3, after_a, b));
  EXPECT_EQ(index.Find(after_a, b), 3);
  EXPECT_EQ(index.Find(ExtendDigest(root, b), b), kNoBlock);
  EXPECT_EQ(index.Find(ExtendDigest(ExtendDigest(RootDigest(2), a), b), b), kNoBlock);
}

TEST(PrefixIndex, EqualHashesOfDifferentTokensNeverMatch) {
  PrefixIndex index({8, 4});
  const PrefixDigest forged{1, 2};
  ASSERT_TRUE(index.Insert(0, forged, Tokens(1, 4)));
  EXPECT_EQ(index.Find(forged, Tokens(2, 4)), kNoBlock);
  ASSERT_TRUE(index.Insert(1, forged, Tokens(2, 4)));
  EXPECT_EQ(index.Find(forged, Tokens(2, 4)), 1);
  index.Erase(0);
  EXPECT_EQ(index.Find(forged, Tokens(2, 4)), 1);
}

TEST(PrefixIndex, ASecondCopyOfTheSameContentIsNotEntered) {
  PrefixIndex index({8, 4});
  const auto a = Tokens(1, 4);
  const PrefixDigest digest = ExtendDigest(RootDigest(0), a);
  EXPECT_TRUE(index.Insert(0, digest, a));
  EXPECT_FALSE(index.Insert(1, digest, a));
  EXPECT_FALSE(index.Contains(1));
  index.Erase(0);
  EXPECT_TRUE(index.Insert(1, digest, a));
}

TEST(PrefixIndex, AgreesWithAPlainMapOverManyInsertsAndErases) {
  PrefixIndex index({16, 1});
  std::map<TokenId, BlockId> expected;
  std::uint64_t state = 7;
  for (int i = 0; i < 20000; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const auto block = static_cast<BlockId>((state >> 33) % 16);
    const auto token = static_cast<TokenId>((state >> 40) % 24);
    const std::vector<TokenId> tokens{token};
    const PrefixDigest crowded{static_cast<std::uint64_t>(token), static_cast<std::uint64_t>(token) % 3};
    if (index.Contains(block)) {
      index.Erase(block);
      std::erase_if(expected, [&](const auto& e) { return e.second == block; });
    } else if (index.Insert(block, crowded, tokens)) {
      ASSERT_TRUE(expected.emplace(token, block).second);
    }
    for (TokenId t = 0; t < 24; ++t) {
      const PrefixDigest digest{static_cast<std::uint64_t>(t), static_cast<std::uint64_t>(t) % 3};
      const auto found = expected.find(t);
      ASSERT_EQ(index.Find(digest, std::vector<TokenId>{t}), found == expected.end() ? kNoBlock : found->second);
    }
    ASSERT_EQ(index.size(), static_cast<std::int64_t>(expected.size()));
  }
}

}  // namespace
}  // namespace berth
