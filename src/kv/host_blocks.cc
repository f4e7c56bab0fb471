#include "kv/host_blocks.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/index.h"
#include "base/planted_bug.h"

namespace berth {
HostHolding::~HostHolding() { Release(); }

HostHolding::HostHolding(HostHolding&& other) noexcept
    : book_(std::exchange(other.book_, nullptr)), blocks_(std::move(other.blocks_)) {}

HostHolding& HostHolding::operator=(HostHolding&& other) noexcept {
  if (this != &other) {
    Release();
    book_ = std::exchange(other.book_, nullptr);
    blocks_ = std::move(other.blocks_);
  }
  return *this;
}

void HostHolding::Release() {
  if (book_ == nullptr) return;
  for (const BlockId block : blocks_) book_->Return(block);
  book_ = nullptr;
  blocks_.clear();
}

HostBlocks::HostBlocks(std::int32_t num_blocks) {
  BERTH_CHECK(num_blocks >= 0);
  taken_.resize(Index(num_blocks));
  free_.resize(Index(num_blocks));
  std::iota(free_.rbegin(), free_.rend(), 0);
}

HostBlocks::~HostBlocks() {
  BERTH_CHECK_MSG(used() == 0, "blocks of the host's memory were not returned");
  CheckBook();
}

std::optional<HostHolding> HostBlocks::Take(std::int64_t count) {
  if (count > std::ssize(free_)) return std::nullopt;
  HostHolding holding;
  holding.book_ = this;
  holding.blocks_.assign(free_.rbegin(), free_.rbegin() + count);
  if (Planted(PlantedBug::kHostBlockFreedEarly)) return holding;
  free_.resize(free_.size() - Index(count));
  for (const BlockId block : holding.blocks_) {
    BERTH_CHECK_MSG(!taken_[Index(block)], "a block of the host's memory is free and taken");
    taken_[Index(block)] = true;
  }
  return holding;
}

void HostBlocks::Return(BlockId block) {
  BERTH_CHECK_MSG(taken_[Index(block)], "a block of the host's memory returned twice");
  taken_[Index(block)] = false;
  free_.push_back(block);
}

void HostBlocks::CheckBook() const {
  BERTH_CHECK_MSG(std::ranges::count(taken_, true) == used(), "a block of the host's memory is neither free nor taken");
  BERTH_CHECK_MSG(std::ranges::none_of(free_, [&](BlockId block) { return taken_[Index(block)]; }),
                  "a block of the host's memory is free and taken");
}

}  // namespace berth
