// The book of the blocks in the host's memory: which are free, which hold what was swapped out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "berth/units.h"

namespace berth {

class HostBlocks;

// Blocks of the host's memory that one owner has; they return when it is destroyed or moved over. Move-only; lives no
// longer than the book it came from.
class HostHolding {
 public:
  HostHolding() = default;
  ~HostHolding();
  HostHolding(HostHolding&& other) noexcept;
  HostHolding& operator=(HostHolding&& other) noexcept;

  std::span<const BlockId> blocks() const { return blocks_; }

 private:
  friend class HostBlocks;
  void Release();

  HostBlocks* book_ = nullptr;
  std::vector<BlockId> blocks_;
};

// Ids run from 0. Not thread-safe. The destructor checks that every block came back.
class HostBlocks {
 public:
  explicit HostBlocks(std::int32_t num_blocks);
  ~HostBlocks();
  HostBlocks(const HostBlocks&) = delete;
  HostBlocks& operator=(const HostBlocks&) = delete;

  // `count` blocks, or nothing where fewer are free.
  std::optional<HostHolding> Take(std::int64_t count);

  std::int64_t num_blocks() const { return static_cast<std::int64_t>(taken_.size()); }
  std::int64_t used() const { return num_blocks() - static_cast<std::int64_t>(free_.size()); }

  // Crashes where the book disagrees with itself. O(blocks).
  void CheckBook() const;

 private:
  friend class HostHolding;
  void Return(BlockId block);

  std::vector<BlockId> free_;  // returned last, taken first
  std::vector<bool> taken_;    // by block
};

}  // namespace berth
