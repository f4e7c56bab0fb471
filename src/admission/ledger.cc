#include "admission/ledger.h"

#include <algorithm>

#include "admission/reach.h"
#include "base/check.h"
#include "base/planted_bug.h"

namespace berth {

Ledger::Ledger(std::int64_t pool_blocks, const Policy& policy)
    : pool_blocks_(pool_blocks), record_of_block_(Index(pool_blocks), -1) {
  SetPolicy(policy);
}

void Ledger::SetPolicy(const Policy& policy) {
  const std::size_t old_width = limits_.size();
  const std::size_t width = policy.classes.size();
  BERTH_CHECK(width >= old_width);
  if (width > old_width) {
    std::vector<std::int32_t> wider(records_.size() * width, 0);
    for (std::size_t r = 0; r < records_.size(); ++r) {
      std::copy_n(class_holders_.begin() + static_cast<std::ptrdiff_t>(r * old_width), old_width,
                  wider.begin() + static_cast<std::ptrdiff_t>(r * width));
    }
    class_holders_ = std::move(wider);
    book_.resize(width);
  }
  limits_.clear();
  max_slots_ = policy.max_running_sequences;
  common_blocks_ = pool_blocks_;
  common_slots_ = max_slots_;
  for (const ClassPolicy& c : policy.classes) {
    const auto id = static_cast<ClassId>(limits_.size());
    limits_.push_back({c.kv_guarantee_blocks, c.ceiling_blocks(),
                       std::max<std::int64_t>(0, c.kv_guarantee_blocks - c.kv_lending_limit_blocks), c.slot_guarantee,
                       c.preemptible, berth::ReachBlocks(policy, id, pool_blocks_), berth::ReachSlots(policy, id)});
    common_blocks_ -= c.kv_guarantee_blocks;
    common_slots_ -= c.slot_guarantee;
  }
  common_slots_ = std::max<std::int64_t>(0, common_slots_);
}

void Ledger::Attach(const LedgerEntry& entry) {
  ClassBook& book = book_[Index(entry.service_class)];
  book.used += entry.blocks;
  book.slots += entry.slots;
  pool_used_ += entry.blocks;
  pool_slots_ += entry.slots;
  for (const std::int32_t record : entry.shares) AddHolder(record, entry.service_class);
}

void Ledger::Detach(const LedgerEntry& entry) {
  ClassBook& book = book_[Index(entry.service_class)];
  book.used -= entry.blocks;
  book.slots -= entry.slots;
  pool_used_ -= entry.blocks;
  pool_slots_ -= entry.slots;
  for (const std::int32_t record : entry.shares) RemoveHolder(record, entry.service_class);
}

void Ledger::AddHolder(std::int32_t record, ClassId c) {
  if (++records_[Index(record)].holders > 1) --pool_used_;
  const bool other_pays = Planted(PlantedBug::kFirstOwnerPays) && records_[Index(record)].holders > 1;
  if (++ClassHolders(record, c) > 1 || other_pays) --book_[Index(c)].used;
}

void Ledger::RemoveHolder(std::int32_t record, ClassId c) {
  if (--records_[Index(record)].holders > 0) ++pool_used_;
  if (--ClassHolders(record, c) > 0) ++book_[Index(c)].used;
}

std::int32_t Ledger::NewRecord(BlockId block) {
  if (spare_records_.empty()) {
    spare_records_.push_back(static_cast<std::int32_t>(records_.size()));
    records_.emplace_back();
    class_holders_.resize(records_.size() * limits_.size(), 0);
  }
  const std::int32_t record = spare_records_.back();
  spare_records_.pop_back();
  records_[Index(record)] = {block, 0, 0, 0};
  record_of_block_[Index(block)] = record;
  return record;
}

void Ledger::Disown(std::int32_t record) {
  Record& r = records_[Index(record)];
  if (--r.owners > 0) return;
  BERTH_CHECK(r.holders == 0);
  record_of_block_[Index(r.block)] = -1;
  spare_records_.push_back(record);
}

void Ledger::Share(LedgerEntry* entry, BlockId block, LedgerEntry* holder) {
  std::int32_t record = record_of_block_[Index(block)];
  if (record < 0) {
    record = NewRecord(block);
    if (holder != nullptr) {
      holder->shares.push_back(record);
      ++records_[Index(record)].owners;
      AddHolder(record, holder->service_class);
    }
  }
  entry->shares.push_back(record);
  ++records_[Index(record)].owners;
}

void Ledger::DropShares(LedgerEntry* entry) {
  for (const std::int32_t record : entry->shares) Disown(record);
  entry->shares.clear();
}

void Ledger::Shrink(LedgerEntry* entry, std::int64_t new_blocks, std::int64_t new_slots,
                    std::span<const BlockId> released) {
  for (const BlockId block : released) {
    const std::int32_t record = record_of_block_[Index(block)];
    if (record < 0) continue;
    const auto found = std::ranges::find(entry->shares, record);
    if (found == entry->shares.end()) continue;
    *found = entry->shares.back();
    entry->shares.pop_back();
    RemoveHolder(record, entry->service_class);
    Disown(record);
  }
  ClassBook& book = book_[Index(entry->service_class)];
  book.used += new_blocks - entry->blocks;
  pool_used_ += new_blocks - entry->blocks;
  book.slots += new_slots - entry->slots;
  pool_slots_ += new_slots - entry->slots;
  entry->blocks = new_blocks;
  entry->slots = new_slots;
}

bool Ledger::TouchesUnlent(ClassId c) const {
  std::int64_t keep = 0;
  for (std::size_t d = 0; d < limits_.size(); ++d) {
    if (static_cast<ClassId>(d) != c) keep += std::max<std::int64_t>(0, limits_[d].unlent - book_[d].used);
  }
  return pool_blocks_ - pool_used_ < keep && !Planted(PlantedBug::kUnlentBorrowed);
}

bool Ledger::CommonSpaceAllows(ClassId c) const {
  const Limits& own = limits_[Index(c)];
  if ((used(c) > own.ceiling && !Planted(PlantedBug::kDebtForgotten)) || !FitsPool()) return false;
  if (!own.preemptible) {
    std::int64_t blocks_beyond = 0;
    std::int64_t slots_beyond = 0;
    for (std::size_t d = 0; d < limits_.size(); ++d) {
      if (limits_[d].preemptible) continue;
      blocks_beyond += std::max<std::int64_t>(0, book_[d].used - limits_[d].guarantee);
      slots_beyond += std::max<std::int64_t>(0, book_[d].slots - limits_[d].slot_guarantee);
    }
    // A resource in which the class stays within its guarantee takes no common space.
    if (BeyondBlocks(c) && blocks_beyond > common_blocks_) return false;
    if (BeyondSlots(c) && slots_beyond > common_slots_) return false;
  }
  return !TouchesUnlent(c);
}

std::int64_t Ledger::FreedBy(const LedgerEntry& entry) const {
  std::int64_t freed = entry.blocks;
  for (const std::int32_t record : entry.shares) freed -= records_[Index(record)].holders > 1 ? 1 : 0;
  return freed;
}

std::int64_t Ledger::UsedAlone(std::span<const LedgerEntry* const> entries) const {
  std::int64_t used = 0;
  for (const LedgerEntry* entry : entries) {
    used += entry->blocks;
    for (const std::int32_t record : entry->shares) used -= records_[Index(record)].seen++ > 0 ? 1 : 0;
  }
  for (const LedgerEntry* entry : entries) {
    for (const std::int32_t record : entry->shares) records_[Index(record)].seen = 0;
  }
  return used;
}

std::int64_t Ledger::Debt(ClassId c) const {
  const Limits& own = limits_[Index(c)];
  const std::int64_t beyond_ceiling = std::max<std::int64_t>(0, used(c) - own.ceiling);
  if (own.preemptible) return beyond_ceiling;
  std::int64_t beyond = 0;
  for (std::size_t d = 0; d < limits_.size(); ++d) {
    if (!limits_[d].preemptible) beyond += std::max<std::int64_t>(0, book_[d].used - limits_[d].guarantee);
  }
  const std::int64_t overage = std::max<std::int64_t>(0, used(c) - own.guarantee);
  return std::max(beyond_ceiling, std::min(overage, std::max<std::int64_t>(0, beyond - common_blocks_)));
}

}  // namespace berth
