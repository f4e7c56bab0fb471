// The sums of the reservation rules: what each class uses of blocks and slots, and the tests over them. docs/ledger.md
// explains the rules.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/index.h"
#include "berth/policy.h"
#include "berth/units.h"

namespace berth {

// One request's weight in the ledger.
struct LedgerEntry {
  ClassId service_class = 0;
  std::int64_t blocks = 0;  // reserved
  std::int64_t slots = 0;
  std::vector<std::int32_t> shares;  // Ledger's records of blocks it holds that others hold too, or held
};

// A class is charged `reserved` for each of its requests, less one for every further holder of the same block within
// the class; the pool likewise, over all holders. That equals "distinct live blocks + what is reserved and not yet
// taken", and changes only when a request starts, ends or loses a choice: taking a reserved block moves nothing. So the
// ledger knows blocks only where they are shared.
//
// Hypothetical states are made by attaching and detaching entries and undoing it; each costs its shared blocks.
class Ledger {
 public:
  Ledger(std::int64_t pool_blocks, const Policy& policy);

  // Entries stay attached and keep their charge under the new limits. Classes may be added, never taken away.
  void SetPolicy(const Policy& policy);

  void Attach(const LedgerEntry& entry);
  void Detach(const LedgerEntry& entry);

  // Records that the detached `entry` holds `block` (once started). `holder` is the attached entry of the only other
  // request that holds it, null where it is idle or was shared before.
  void Share(LedgerEntry* entry, BlockId block, LedgerEntry* holder);
  // Forgets the shares of a detached entry.
  void DropShares(LedgerEntry* entry);
  // An attached entry lets go of `blocks` and shrinks.
  void Shrink(LedgerEntry* entry, std::int64_t new_blocks, std::int64_t new_slots, std::span<const BlockId> released);

  std::int64_t used(ClassId c) const { return book_[Index(c)].used; }
  std::int64_t slots_used(ClassId c) const { return book_[Index(c)].slots; }
  std::int64_t pool_used() const { return pool_used_; }
  std::int64_t pool_slots() const { return pool_slots_; }
  std::int64_t pool_blocks() const { return pool_blocks_; }
  std::int64_t common_blocks() const { return common_blocks_; }
  std::int64_t common_slots() const { return common_slots_; }

  bool BeyondBlocks(ClassId c) const { return used(c) > limits_[Index(c)].guarantee; }
  bool BeyondSlots(ClassId c) const { return slots_used(c) > limits_[Index(c)].slot_guarantee; }
  bool WithinGuarantee(ClassId c) const { return !BeyondBlocks(c) && !BeyondSlots(c); }
  // Everything attached fits the machine.
  bool FitsPool() const { return pool_used_ <= pool_blocks_ && pool_slots_ <= max_slots_; }
  bool ShortOfBlocks() const { return pool_used_ > pool_blocks_; }
  bool ShortOfSlots() const { return pool_slots_ > max_slots_; }
  // Less is free than other classes keep back from lending. `c` = the class that is claiming.
  bool TouchesUnlent(ClassId c) const;
  // Class `c` may be in this state after taking common space.
  bool CommonSpaceAllows(ClassId c) const;
  // The blocks `entry` would free if it went now: its reservation less what others still hold.
  std::int64_t FreedBy(const LedgerEntry& entry) const;
  // What these attached or detached entries of one class use by themselves.
  std::int64_t UsedAlone(std::span<const LedgerEntry* const> entries) const;

  // The most a single request of the class may ever have.
  std::int64_t ReachBlocks(ClassId c) const { return limits_[Index(c)].reach_blocks; }
  std::int64_t ReachSlots(ClassId c) const { return limits_[Index(c)].reach_slots; }
  // Blocks beyond the ceiling, or the class's overage where non-preemptible classes exceed the common space.
  std::int64_t Debt(ClassId c) const;

 private:
  struct Limits {
    std::int64_t guarantee = 0;
    std::int64_t ceiling = 0;
    std::int64_t unlent = 0;  // of the guarantee, kept back from lending
    std::int64_t slot_guarantee = 0;
    bool preemptible = false;
    std::int64_t reach_blocks = 0;
    std::int64_t reach_slots = 0;
  };
  struct ClassBook {
    std::int64_t used = 0;
    std::int64_t slots = 0;
  };
  struct Record {
    BlockId block = kNoBlock;
    std::int32_t holders = 0;       // attached entries among `owners`
    std::int32_t owners = 0;        // entries that list the record
    mutable std::int32_t seen = 0;  // scratch of UsedAlone, 0 between calls
  };

  std::int32_t& ClassHolders(std::int32_t record, ClassId c) {
    return class_holders_[Index(record) * limits_.size() + Index(c)];
  }
  void AddHolder(std::int32_t record, ClassId c);
  void RemoveHolder(std::int32_t record, ClassId c);
  std::int32_t NewRecord(BlockId block);
  void Disown(std::int32_t record);

  std::int64_t pool_blocks_;
  std::int64_t max_slots_ = 0;
  std::int64_t common_blocks_ = 0;
  std::int64_t common_slots_ = 0;
  std::vector<Limits> limits_;
  std::vector<ClassBook> book_;
  std::int64_t pool_used_ = 0;
  std::int64_t pool_slots_ = 0;
  std::vector<std::int32_t> record_of_block_;  // -1 = none
  std::vector<Record> records_;
  std::vector<std::int32_t> class_holders_;  // attached holders by class, one row per record
  std::vector<std::int32_t> spare_records_;
};

}  // namespace berth
