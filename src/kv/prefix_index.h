// Finds computed blocks by content: which block holds these tokens after this prefix, for this tenant.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "berth/kv.h"
#include "berth/units.h"

namespace berth {

// Names the content of a block and of everything before it: a chained 128-bit hash that starts from a tenant's salt.
struct PrefixDigest {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  bool operator==(const PrefixDigest&) const = default;
};

// Where every chain of one tenant starts; tenants with different salts never share a block.
PrefixDigest RootDigest(std::uint64_t salt);
// The digest of a chain extended by one full block.
PrefixDigest ExtendDigest(const PrefixDigest& parent, std::span<const TokenId> block_tokens);

// Content -> block, at most one block per content. A match compares the block's tokens exactly and the prefix before it
// by digest. Memory is taken at construction; nothing allocates later. Not thread-safe.
class PrefixIndex {
 public:
  explicit PrefixIndex(const KvPoolShape& shape);

  // The block with this content, or kNoBlock. `digest` = ExtendDigest(parent, tokens).
  BlockId Find(const PrefixDigest& digest, std::span<const TokenId> tokens) const;

  // Enters a full, computed block. False, changing nothing, where another block has that content already: copies are
  // never merged. REQUIRES: the block is not in the index and tokens.size() = block_tokens.
  bool Insert(BlockId block, const PrefixDigest& digest, std::span<const TokenId> tokens);

  // Forgets the block, because its memory is about to be reused. Does nothing for a block that is not in the index.
  void Erase(BlockId block);

  bool Contains(BlockId block) const { return entries_[static_cast<std::size_t>(block)].bucket >= 0; }
  // REQUIRES: Contains(block).
  const PrefixDigest& digest(BlockId block) const { return entries_[static_cast<std::size_t>(block)].digest; }
  std::int64_t size() const { return size_; }

 private:
  struct Entry {
    PrefixDigest digest;
    std::int32_t bucket = -1;  // where buckets_ names this block; -1 = not in the index
  };

  std::size_t HomeBucket(const PrefixDigest& digest) const { return digest.low & (buckets_.size() - 1); }
  std::span<const TokenId> TokensOf(BlockId block) const;

  std::int32_t block_tokens_;
  std::vector<Entry> entries_;    // by block
  std::vector<TokenId> tokens_;   // block_tokens_ per block
  std::vector<BlockId> buckets_;  // open addressing, linear probing, a power of two and at most half full
  std::int64_t size_ = 0;
};

}  // namespace berth
