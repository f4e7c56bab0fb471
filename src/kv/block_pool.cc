#include "kv/block_pool.h"

#include <string>
#include <utility>

#include "base/check.h"

namespace berth {

BlockReservation::BlockReservation(BlockPool* pool, std::int64_t reserved) : pool_(pool), reserved_(reserved) {
  table_.reserve(static_cast<std::size_t>(reserved));
}

BlockReservation::~BlockReservation() { Release(); }

BlockReservation::BlockReservation(BlockReservation&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      reserved_(std::exchange(other.reserved_, 0)),
      table_(std::exchange(other.table_, {})) {}

BlockReservation& BlockReservation::operator=(BlockReservation&& other) noexcept {
  if (this != &other) {
    Release();
    pool_ = std::exchange(other.pool_, nullptr);
    reserved_ = std::exchange(other.reserved_, 0);
    table_ = std::exchange(other.table_, {});
  }
  return *this;
}

void BlockReservation::CoverTokens(std::int64_t tokens) {
  if (tokens <= 0) return;
  BERTH_CHECK_MSG(pool_ != nullptr, "a reservation without a pool covers no tokens");
  const std::int64_t needed = CeilDiv(tokens, pool_->shape_.block_tokens);
  BERTH_CHECK_MSG(needed <= reserved_, std::to_string(tokens) + " tokens need " + std::to_string(needed) + " blocks, " +
                                           std::to_string(reserved_) + " are reserved");
  while (held() < needed) {
    table_.push_back(pool_->free_.back());
    pool_->free_.pop_back();
    --pool_->unspent_;
  }
}

void BlockReservation::Release() {
  if (pool_ == nullptr) return;
  pool_->unspent_ -= reserved_ - held();
  // Backwards, so that the next sequence gets them in the order in which this one did.
  pool_->free_.insert(pool_->free_.end(), table_.rbegin(), table_.rend());
  table_.clear();
  reserved_ = 0;
  pool_ = nullptr;
}

BlockPool::BlockPool(const KvPoolShape& shape) : shape_(shape) {
  BERTH_CHECK(shape.num_blocks >= 0 && shape.block_tokens >= 1);
  free_.reserve(static_cast<std::size_t>(shape.num_blocks));
  for (BlockId id = shape.num_blocks; id > 0; --id) free_.push_back(id - 1);
}

BlockPool::~BlockPool() {
  BERTH_CHECK_MSG(held_blocks() == 0 && unspent_ == 0, std::to_string(held_blocks()) + " blocks held and " +
                                                           std::to_string(unspent_) + " promised at the pool's end");
}

std::optional<BlockReservation> BlockPool::Reserve(std::int64_t blocks) {
  BERTH_CHECK(blocks >= 0);
  if (blocks > available_blocks()) return std::nullopt;
  unspent_ += blocks;
  return BlockReservation(this, blocks);
}

std::int64_t BlockPool::held_blocks() const { return shape_.num_blocks - static_cast<std::int64_t>(free_.size()); }

std::int64_t BlockPool::available_blocks() const { return static_cast<std::int64_t>(free_.size()) - unspent_; }

}  // namespace berth
