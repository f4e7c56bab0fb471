// The one book of KV blocks: which are free, how many are promised, who holds which, and what the computed ones
// contain.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "berth/kv.h"
#include "berth/units.h"
#include "kv/host_blocks.h"
#include "kv/prefix_index.h"

namespace berth {

class BlockPool;

// What a reservation is for: a request of `choices` sequences that share the first `shared_blocks` = ⌊P/B⌋ blocks of
// one prompt, in one service class.
struct ReservationSpec {
  RequestKey request = 0;
  ClassId service_class = 0;
  std::int64_t blocks = 0;         // the worst case: what all its sequences together may come to hold
  std::int64_t shared_blocks = 0;  // full prompt blocks
  std::int32_t choices = 1;
};

// Computed blocks that a request need not compute again. No block twice.
struct CachedPrefix {
  std::vector<BlockId> shared;  // of the prompt's full blocks, from the first
  std::vector<std::vector<BlockId>>
      choices;  // per choice: what follows all of the prompt's full blocks; may be shorter

  std::int64_t size() const;
  void Clear();
};

// A request's right to `reserved()` blocks, and those it has taken so far: one block table per choice, the first blocks
// common to all. Whatever it takes comes out of what was reserved for it, and every block returns to the pool when the
// reservation is destroyed or moved over. Move-only; lives no longer than its pool.
class BlockReservation {
 public:
  BlockReservation() = default;
  ~BlockReservation();
  BlockReservation(BlockReservation&& other) noexcept;
  BlockReservation& operator=(BlockReservation&& other) noexcept;

  // Takes blocks until the choice's table covers `tokens` tokens. REQUIRES: that needs no more than reserved() blocks
  // in all; the choice has not ended. Full prompt blocks go to the common part, whichever choice asks.
  void Cover(std::int32_t choice, std::int64_t tokens);

  // The step that stored the first `stored_tokens` tokens of this choice succeeded: its full blocks can be found by
  // others from now on. `history` = the choice's token ids, at least as many. A chain only grows: call it with rising
  // counts, and for the prompt's full blocks before any choice's own.
  void MarkComputed(std::int32_t choice, std::span<const TokenId> history, std::int64_t stored_tokens);

  // The choice is over: its own blocks return and the reservation drops to `new_reserved`. `released` gets the blocks
  // that returned. REQUIRES: held() after that ≤ new_reserved ≤ reserved().
  void EndChoice(std::int32_t choice, std::int64_t new_reserved, std::vector<BlockId>* released);

  // Two choices trade their own blocks: for a choice that ends while others have yet to copy from its block.
  // REQUIRES: both have as many.
  void SwapOwn(std::int32_t a, std::int32_t b);

  std::int64_t reserved() const { return reserved_; }
  std::int64_t held() const { return held_; }  // distinct blocks, hits included
  std::int32_t choices() const { return static_cast<std::int32_t>(own_.size()); }
  // A choice's table is shared_blocks() followed by own_blocks(choice), in order of position.
  std::span<const BlockId> shared_blocks() const { return shared_.blocks; }
  std::span<const BlockId> own_blocks(std::int32_t choice) const {
    return own_[static_cast<std::size_t>(choice)].blocks;
  }
  // Appends the choice's whole table.
  void AppendTable(std::int32_t choice, std::vector<BlockId>* out) const;

 private:
  friend class BlockPool;

  // A run of blocks and how far the prefix index knows it.
  struct Chain {
    std::vector<BlockId> blocks;
    std::size_t indexed = 0;  // leading blocks whose digest is in `digest`
    PrefixDigest digest;
  };

  void Release();
  void ReturnFromBack(Chain* chain, std::vector<BlockId>* released);
  void ExtendChain(Chain* chain, std::span<const TokenId> history, std::int64_t first_block, std::int64_t end_block);

  BlockPool* pool_ = nullptr;
  std::int32_t holder_ = -1;
  std::int64_t reserved_ = 0;
  std::int64_t held_ = 0;
  std::int64_t shared_target_ = 0;
  Chain shared_;
  std::vector<Chain> own_;
};

// Free blocks are reused in the order in which they became free; a computed block stays findable until it is reused,
// and counts as free. A request's blocks return last position first, so that a prefix outlives its continuations.
// Nothing allocates once a reservation exists. Not thread-safe: the engine thread owns it. The destructor checks that
// every block came back.
class BlockPool {
 public:
  explicit BlockPool(const KvPoolShape& shape, std::int32_t num_classes = 1);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // A reservation of spec.blocks that holds the blocks of `cached` already, or nothing where live blocks, promises and
  // this one together exceed the pool. `cached` is what FindCached returned with no Cover in between.
  std::optional<BlockReservation> Reserve(const ReservationSpec& spec, std::uint64_t salt,
                                          const CachedPrefix& cached = {});

  // The longest computed prefixes of a request's sequences. `histories`: one per choice, its prompt and output so far;
  // empty for a choice that has ended. The last token of a history is never covered: it is always computed, into an own
  // block. Choices share the prompt's full blocks and nothing else.
  void FindCached(std::uint64_t salt, std::int64_t prompt_tokens, std::span<const std::span<const TokenId>> histories,
                  CachedPrefix* out) const;

  // What lies in the host's memory instead: shape().host_blocks of them.
  HostBlocks& host() { return host_; }
  const HostBlocks& host() const { return host_; }

  // Room for the books of so many classes. Never shrinks.
  void GrowClasses(std::int32_t num_classes);

  const KvPoolShape& shape() const { return shape_; }
  std::int64_t live_blocks() const { return live_; }        // held by at least one request
  std::int64_t unspent_blocks() const { return unspent_; }  // promised, not yet taken
  std::int64_t available_blocks() const { return shape_.num_blocks - live_ - unspent_; }
  std::int64_t cached_blocks() const { return index_.size(); }      // findable, live or not
  std::int64_t idle_cached_blocks() const { return idle_cached_; }  // findable, held by nobody
  // used_c of the ledger: blocks with a holder of this class, each once, and what its requests may still take.
  std::int64_t used_blocks(ClassId service_class) const;
  std::int32_t references(BlockId block) const { return blocks_[static_cast<std::size_t>(block)].references; }
  bool HeldByClass(BlockId block, ClassId service_class) const {
    return class_references_[static_cast<std::size_t>(block) * classes_.size() +
                             static_cast<std::size_t>(service_class)] > 0;
  }
  // The block's holder where it has exactly one, else kNoRequest.
  RequestKey SoleHolder(BlockId block) const;

  // Recounts everything from the free list and the references; crashes where the book disagrees with itself. O(blocks).
  void CheckBook() const;

 private:
  friend class BlockReservation;

  struct Block {
    std::int32_t references = 0;    // requests that hold it
    std::uint32_t holders_xor = 0;  // of their slots: with one reference, that holder's slot
    BlockId previous = kNoBlock;    // in the free list, while references = 0
    BlockId next = kNoBlock;
  };
  struct Holder {
    RequestKey request = kNoRequest;
    ClassId service_class = 0;
  };
  struct ClassBook {
    std::int64_t live = 0;
    std::int64_t unspent = 0;
  };

  std::int32_t NewHolder(const ReservationSpec& spec);
  BlockId Take(std::int32_t holder);
  void AddReference(std::int32_t holder, BlockId block);
  void DropReference(std::int32_t holder, BlockId block);
  void AddUnspent(std::int32_t holder, std::int64_t blocks);
  void LinkFree(BlockId block);
  void UnlinkFree(BlockId block);
  std::int32_t& ClassReferences(BlockId block, ClassId service_class);

  KvPoolShape shape_;
  HostBlocks host_;
  PrefixIndex index_;
  std::vector<Block> blocks_;
  std::vector<std::int32_t> class_references_;  // num_classes per block
  std::vector<ClassBook> classes_;
  std::vector<Holder> holders_;
  std::vector<std::int32_t> spare_holders_;
  BlockId free_first_ = kNoBlock;  // freed longest ago: reused next
  BlockId free_last_ = kNoBlock;
  std::int64_t live_ = 0;
  std::int64_t unspent_ = 0;
  std::int64_t idle_cached_ = 0;
};

}  // namespace berth
