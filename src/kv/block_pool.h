// The one book of KV blocks: which are free, how many are promised, who holds which.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "berth/kv.h"
#include "berth/units.h"

namespace berth {

class BlockPool;

// A sequence's right to `reserved()` blocks, and the ones it has taken so far: its block table. Everything returns to
// the pool when the reservation is destroyed or moved over. Move-only; lives no longer than its pool.
class BlockReservation {
 public:
  BlockReservation() = default;
  ~BlockReservation();
  BlockReservation(BlockReservation&& other) noexcept;
  BlockReservation& operator=(BlockReservation&& other) noexcept;

  // Takes blocks until the table covers `tokens` tokens. REQUIRES: that needs no more than reserved() blocks; a table
  // never shrinks.
  void CoverTokens(std::int64_t tokens);

  std::span<const BlockId> block_table() const { return table_; }
  std::int64_t held() const { return static_cast<std::int64_t>(table_.size()); }
  std::int64_t reserved() const { return reserved_; }

 private:
  friend class BlockPool;
  BlockReservation(BlockPool* pool, std::int64_t reserved);
  void Release();

  BlockPool* pool_ = nullptr;
  std::int64_t reserved_ = 0;
  std::vector<BlockId> table_;
};

// Not thread-safe: the engine thread owns it. The destructor checks that every block came back.
class BlockPool {
 public:
  explicit BlockPool(const KvPoolShape& shape);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // A reservation of `blocks`, or nothing where fewer are free and unpromised. 0 ≤ blocks.
  std::optional<BlockReservation> Reserve(std::int64_t blocks);

  const KvPoolShape& shape() const { return shape_; }
  std::int64_t held_blocks() const;                         // in some table
  std::int64_t unspent_blocks() const { return unspent_; }  // promised, not yet taken
  std::int64_t available_blocks() const;                    // free and not promised

 private:
  friend class BlockReservation;

  KvPoolShape shape_;
  std::vector<BlockId> free_;  // a stack: the block that came back last goes out first, its memory is warm
  std::int64_t unspent_ = 0;
};

}  // namespace berth
