#include "kv/prefix_index.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace berth {
namespace {

// The finaliser of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
std::uint64_t Mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

PrefixDigest RootDigest(std::uint64_t salt) {
  return {Mix(salt + 0x9e3779b97f4a7c15ULL), Mix(salt ^ 0x6a09e667f3bcc908ULL)};
}

PrefixDigest ExtendDigest(const PrefixDigest& parent, std::span<const TokenId> block_tokens) {
  PrefixDigest digest = parent;
  for (const TokenId token : block_tokens) {
    const std::uint64_t word = static_cast<std::uint32_t>(token);
    digest.high = Mix(digest.high + word + 0x9e3779b97f4a7c15ULL);
    digest.low = Mix(std::rotl(digest.low, 23) ^ (word + 0x3c6ef372fe94f82bULL));
  }
  return digest;
}

PrefixIndex::PrefixIndex(const KvPoolShape& shape)
    : block_tokens_(shape.block_tokens),
      entries_(static_cast<std::size_t>(shape.num_blocks)),
      tokens_(static_cast<std::size_t>(shape.num_blocks) * static_cast<std::size_t>(shape.block_tokens)),
      buckets_(std::bit_ceil(2 * static_cast<std::size_t>(shape.num_blocks) + 2), kNoBlock) {}

std::span<const TokenId> PrefixIndex::TokensOf(BlockId block) const {
  const auto width = static_cast<std::size_t>(block_tokens_);
  return std::span(tokens_).subspan(static_cast<std::size_t>(block) * width, width);
}

BlockId PrefixIndex::Find(const PrefixDigest& digest, std::span<const TokenId> tokens) const {
  const std::size_t mask = buckets_.size() - 1;
  for (std::size_t i = HomeBucket(digest); buckets_[i] != kNoBlock; i = (i + 1) & mask) {
    const BlockId block = buckets_[i];
    if (entries_[static_cast<std::size_t>(block)].digest == digest && std::ranges::equal(TokensOf(block), tokens)) {
      return block;
    }
  }
  return kNoBlock;
}

bool PrefixIndex::Insert(BlockId block, const PrefixDigest& digest, std::span<const TokenId> tokens) {
  BERTH_CHECK(static_cast<std::int64_t>(tokens.size()) == block_tokens_);
  Entry& entry = entries_[static_cast<std::size_t>(block)];
  BERTH_CHECK(entry.bucket < 0);
  if (Find(digest, tokens) != kNoBlock) return false;
  const std::size_t mask = buckets_.size() - 1;
  std::size_t i = HomeBucket(digest);
  while (buckets_[i] != kNoBlock) i = (i + 1) & mask;
  buckets_[i] = block;
  entry = {digest, static_cast<std::int32_t>(i)};
  std::ranges::copy(tokens, tokens_.begin() + static_cast<std::ptrdiff_t>(block) * block_tokens_);
  ++size_;
  return true;
}

void PrefixIndex::Erase(BlockId block) {
  Entry& entry = entries_[static_cast<std::size_t>(block)];
  if (entry.bucket < 0) return;
  const std::size_t mask = buckets_.size() - 1;
  auto hole = static_cast<std::size_t>(entry.bucket);
  entry.bucket = -1;
  --size_;
  // Backward shift: whatever probed over the hole moves into it, so that no tombstones pile up.
  for (std::size_t i = (hole + 1) & mask; buckets_[i] != kNoBlock; i = (i + 1) & mask) {
    Entry& moved = entries_[static_cast<std::size_t>(buckets_[i])];
    const std::size_t home = HomeBucket(moved.digest);
    if (((i - home) & mask) < ((i - hole) & mask)) continue;
    buckets_[hole] = buckets_[i];
    moved.bucket = static_cast<std::int32_t>(hole);
    hole = i;
  }
  buckets_[hole] = kNoBlock;
}

}  // namespace berth
