#include "kv/block_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/index.h"
#include "base/planted_bug.h"

namespace berth {
std::int64_t CachedPrefix::size() const {
  std::size_t total = shared.size();
  for (const auto& choice : choices) total += choice.size();
  return static_cast<std::int64_t>(total);
}

void CachedPrefix::Clear() {
  shared.clear();
  for (auto& choice : choices) choice.clear();
}

BlockPool::BlockPool(const KvPoolShape& shape, std::int32_t num_classes)
    : shape_(shape), host_(shape.host_blocks), index_(shape), blocks_(Index(shape.num_blocks)) {
  BERTH_CHECK(shape.num_blocks >= 0 && shape.block_tokens >= 1 && num_classes >= 1);
  GrowClasses(num_classes);
  for (BlockId block = 0; block < shape.num_blocks; ++block) LinkFree(block);
}

BlockPool::~BlockPool() {
  BERTH_CHECK_MSG(live_ == 0 && unspent_ == 0, "a reservation outlived its pool or leaked blocks");
  CheckBook();
}

void BlockPool::GrowClasses(std::int32_t num_classes) {
  const std::size_t old_width = classes_.size();
  const auto new_width = Index(num_classes);
  if (new_width <= old_width) return;
  std::vector<std::int32_t> wider(blocks_.size() * new_width, 0);
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    std::copy_n(class_references_.begin() + static_cast<std::ptrdiff_t>(block * old_width), old_width,
                wider.begin() + static_cast<std::ptrdiff_t>(block * new_width));
  }
  class_references_ = std::move(wider);
  classes_.resize(new_width);
}

std::optional<BlockReservation> BlockPool::Reserve(const ReservationSpec& spec, std::uint64_t salt,
                                                   const CachedPrefix& cached) {
  const std::int64_t hits = cached.size();
  BERTH_CHECK(spec.choices >= 1 && hits <= spec.blocks);
  BERTH_CHECK(spec.service_class >= 0 && Index(spec.service_class) < classes_.size());
  std::int64_t already_live = 0;
  const auto count_live = [&](const std::vector<BlockId>& blocks) {
    for (const BlockId block : blocks) already_live += references(block) > 0 ? 1 : 0;
  };
  count_live(cached.shared);
  for (const auto& choice : cached.choices) count_live(choice);
  if (spec.blocks - already_live > available_blocks()) return std::nullopt;

  BlockReservation result;
  result.pool_ = this;
  result.holder_ = NewHolder(spec);
  result.reserved_ = spec.blocks;
  result.held_ = hits;
  result.shared_target_ = spec.shared_blocks;
  result.own_.resize(Index(spec.choices));
  AddUnspent(result.holder_, spec.blocks - hits);
  const auto adopt = [&](const std::vector<BlockId>& blocks, std::int64_t room, BlockReservation::Chain* chain) {
    chain->blocks.reserve(Index(room));
    for (const BlockId block : blocks) {
      if (!Planted(PlantedBug::kMissedReference) || references(block) > 0) AddReference(result.holder_, block);
      chain->blocks.push_back(block);
    }
    chain->indexed = blocks.size();
    if (!blocks.empty()) chain->digest = index_.digest(blocks.back());
  };
  result.shared_.digest = RootDigest(salt);
  adopt(cached.shared, spec.shared_blocks, &result.shared_);
  // What one choice may need, so that decoding never grows a table's memory.
  const std::int64_t own_room = CeilDiv(std::max<std::int64_t>(0, spec.blocks - spec.shared_blocks), spec.choices);
  for (std::size_t i = 0; i < result.own_.size(); ++i) {
    static const std::vector<BlockId> kNone;
    adopt(i < cached.choices.size() ? cached.choices[i] : kNone, own_room, &result.own_[i]);
  }
  return result;
}

void BlockPool::FindCached(std::uint64_t salt, std::int64_t prompt_tokens,
                           std::span<const std::span<const TokenId>> histories, CachedPrefix* out) const {
  out->Clear();
  out->choices.resize(histories.size());
  const auto width = Index(shape_.block_tokens);
  const std::size_t shared_blocks = Index(prompt_tokens) / width;
  const auto lookup = [&](std::span<const TokenId> history, std::size_t i, PrefixDigest* digest) {
    const std::span<const TokenId> tokens = history.subspan(i * width, width);
    *digest = ExtendDigest(*digest, tokens);
    return index_.Find(*digest, tokens);
  };

  const auto longest = std::ranges::max_element(histories, {}, [](const auto& h) { return h.size(); });
  if (longest == histories.end() || longest->empty()) return;
  PrefixDigest shared_digest = RootDigest(salt);
  const std::size_t last_token = Planted(PlantedBug::kSharedBlockWritten) ? 0 : 1;
  const std::size_t shared_end = std::min(shared_blocks, (longest->size() - last_token) / width);
  for (std::size_t i = 0; i < shared_end; ++i) {
    const BlockId block = lookup(*longest, i, &shared_digest);
    if (block == kNoBlock) return;
    out->shared.push_back(block);
  }
  if (shared_end < shared_blocks) return;

  for (std::size_t q = 0; q < histories.size(); ++q) {
    if (histories[q].empty()) continue;
    PrefixDigest digest = shared_digest;
    for (std::size_t i = shared_blocks; i < (histories[q].size() - 1) / width; ++i) {
      const BlockId block = lookup(histories[q], i, &digest);
      if (block == kNoBlock) break;
      const std::size_t depth = i - shared_blocks;
      const bool taken = std::any_of(out->choices.begin(), out->choices.begin() + static_cast<std::ptrdiff_t>(q),
                                     [&](const auto& c) { return c.size() > depth && c[depth] == block; });
      if (taken) break;
      out->choices[q].push_back(block);
    }
  }
}

std::int64_t BlockPool::used_blocks(ClassId service_class) const {
  const ClassBook& book = classes_[Index(service_class)];
  return book.live + book.unspent;
}

RequestKey BlockPool::SoleHolder(BlockId block) const {
  const Block& b = blocks_[Index(block)];
  return b.references == 1 ? holders_[b.holders_xor].request : kNoRequest;
}

std::int32_t BlockPool::NewHolder(const ReservationSpec& spec) {
  if (spare_holders_.empty()) {
    spare_holders_.push_back(static_cast<std::int32_t>(holders_.size()));
    holders_.emplace_back();
    spare_holders_.reserve(holders_.capacity());
  }
  const std::int32_t holder = spare_holders_.back();
  spare_holders_.pop_back();
  holders_[Index(holder)] = {spec.request, spec.service_class};
  return holder;
}

BlockId BlockPool::Take(std::int32_t holder) {
  const BlockId block = free_first_;
  BERTH_CHECK(block != kNoBlock);
  if (!Planted(PlantedBug::kReusedBlockStillFound)) {
    idle_cached_ -= index_.Contains(block) ? 1 : 0;
    index_.Erase(block);
  }
  AddReference(holder, block);
  AddUnspent(holder, -1);
  return block;
}

void BlockPool::AddReference(std::int32_t holder, BlockId block) {
  Block& b = blocks_[Index(block)];
  if (b.references == 0) {
    UnlinkFree(block);
    ++live_;
    idle_cached_ -= index_.Contains(block) ? 1 : 0;
  }
  ++b.references;
  b.holders_xor ^= static_cast<std::uint32_t>(holder);
  const ClassId service_class = holders_[Index(holder)].service_class;
  if (++ClassReferences(block, service_class) == 1) ++classes_[Index(service_class)].live;
}

void BlockPool::DropReference(std::int32_t holder, BlockId block) {
  Block& b = blocks_[Index(block)];
  BERTH_CHECK(b.references > 0);
  --b.references;
  b.holders_xor ^= static_cast<std::uint32_t>(holder);
  const ClassId service_class = holders_[Index(holder)].service_class;
  if (--ClassReferences(block, service_class) == 0) --classes_[Index(service_class)].live;
  if (b.references == 0) {
    --live_;
    idle_cached_ += index_.Contains(block) ? 1 : 0;
    LinkFree(block);
  }
}

void BlockPool::AddUnspent(std::int32_t holder, std::int64_t blocks) {
  unspent_ += blocks;
  ClassBook& book = classes_[Index(holders_[Index(holder)].service_class)];
  book.unspent += blocks;
  BERTH_CHECK(book.unspent >= 0);
}

void BlockPool::LinkFree(BlockId block) {
  Block& b = blocks_[Index(block)];
  b.previous = free_last_;
  b.next = kNoBlock;
  (free_last_ == kNoBlock ? free_first_ : blocks_[Index(free_last_)].next) = block;
  free_last_ = block;
}

void BlockPool::UnlinkFree(BlockId block) {
  const Block& b = blocks_[Index(block)];
  (b.previous == kNoBlock ? free_first_ : blocks_[Index(b.previous)].next) = b.next;
  (b.next == kNoBlock ? free_last_ : blocks_[Index(b.next)].previous) = b.previous;
}

std::int32_t& BlockPool::ClassReferences(BlockId block, ClassId service_class) {
  return class_references_[Index(block) * classes_.size() + Index(service_class)];
}

void BlockPool::CheckBook() const {
  host_.CheckBook();
  std::int64_t free_blocks = 0;
  std::int64_t idle_cached = 0;
  for (BlockId block = free_first_; block != kNoBlock; block = blocks_[Index(block)].next) {
    BERTH_CHECK_MSG(blocks_[Index(block)].references == 0, "a block with a holder is in the free list");
    idle_cached += index_.Contains(block) ? 1 : 0;
    BERTH_CHECK_MSG(++free_blocks <= shape_.num_blocks, "the free list runs in a circle");
  }
  BERTH_CHECK_MSG(idle_cached == idle_cached_, "free blocks that can be found are miscounted");
  std::int64_t live = 0;
  std::vector<std::int64_t> live_in_class(classes_.size(), 0);
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    std::int32_t sum = 0;
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      const std::int32_t references = class_references_[block * classes_.size() + c];
      sum += references;
      live_in_class[c] += references > 0 ? 1 : 0;
    }
    BERTH_CHECK_MSG(sum == blocks_[block].references, "references by class do not add up");
    live += sum > 0 ? 1 : 0;
  }
  BERTH_CHECK_MSG(live == live_ && live + free_blocks == shape_.num_blocks, "a block is neither free nor held");
  std::int64_t unspent = 0;
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    BERTH_CHECK_MSG(live_in_class[c] == classes_[c].live, "a class's live blocks are miscounted");
    unspent += classes_[c].unspent;
  }
  BERTH_CHECK_MSG(unspent == unspent_ && live_ + unspent_ <= shape_.num_blocks, "more is promised than there is");
}

BlockReservation::~BlockReservation() { Release(); }

BlockReservation::BlockReservation(BlockReservation&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      holder_(other.holder_),
      reserved_(std::exchange(other.reserved_, 0)),
      held_(std::exchange(other.held_, 0)),
      shared_target_(other.shared_target_),
      shared_(std::move(other.shared_)),
      own_(std::move(other.own_)) {}

BlockReservation& BlockReservation::operator=(BlockReservation&& other) noexcept {
  if (this != &other) {
    Release();
    pool_ = std::exchange(other.pool_, nullptr);
    holder_ = other.holder_;
    reserved_ = std::exchange(other.reserved_, 0);
    held_ = std::exchange(other.held_, 0);
    shared_target_ = other.shared_target_;
    shared_ = std::move(other.shared_);
    own_ = std::move(other.own_);
  }
  return *this;
}

void BlockReservation::Release() {
  if (pool_ == nullptr) return;
  for (Chain& chain : own_) ReturnFromBack(&chain, nullptr);
  ReturnFromBack(&shared_, nullptr);
  pool_->AddUnspent(holder_, held_ - reserved_);
  pool_->spare_holders_.push_back(holder_);
  pool_ = nullptr;
  reserved_ = held_ = 0;
  own_.clear();
}

void BlockReservation::ReturnFromBack(Chain* chain, std::vector<BlockId>* released) {
  // The unspent part follows from held_, which the caller settles: here only references move.
  for (; !chain->blocks.empty(); chain->blocks.pop_back()) {
    pool_->DropReference(holder_, chain->blocks.back());
    if (released != nullptr) released->push_back(chain->blocks.back());
    if (Planted(PlantedBug::kDoubleFree) && released != nullptr) pool_->LinkFree(chain->blocks.back());
  }
}

void BlockReservation::Cover(std::int32_t choice, std::int64_t tokens) {
  BERTH_CHECK(pool_ != nullptr && choice >= 0 && choice < choices());
  std::vector<BlockId>& own = own_[Index(choice)].blocks;
  const std::int64_t needed = CeilDiv(tokens, pool_->shape_.block_tokens);
  for (auto covered = static_cast<std::int64_t>(shared_.blocks.size() + own.size()); covered < needed; ++covered) {
    BERTH_CHECK_MSG(held_ < reserved_, "a sequence needs more blocks than were reserved for it");
    (covered < shared_target_ ? shared_.blocks : own).push_back(pool_->Take(holder_));
    ++held_;
  }
}

void BlockReservation::MarkComputed(std::int32_t choice, std::span<const TokenId> history, std::int64_t stored_tokens) {
  const std::int64_t full = stored_tokens / pool_->shape_.block_tokens;
  ExtendChain(&shared_, history, 0, std::min(full, shared_target_));
  if (full <= shared_target_) return;
  Chain& own = own_[Index(choice)];
  if (own.indexed == 0) own.digest = shared_.digest;
  ExtendChain(&own, history, shared_target_, full);
}

void BlockReservation::ExtendChain(Chain* chain, std::span<const TokenId> history, std::int64_t first_block,
                                   std::int64_t end_block) {
  const auto width = Index(pool_->shape_.block_tokens);
  for (std::size_t i = chain->indexed; Index(first_block) + i < Index(end_block); ++i) {
    const std::span<const TokenId> tokens = history.subspan((Index(first_block) + i) * width, width);
    chain->digest = ExtendDigest(chain->digest, tokens);
    pool_->index_.Insert(chain->blocks[i], chain->digest, tokens);
    chain->indexed = i + 1;
  }
}

void BlockReservation::EndChoice(std::int32_t choice, std::int64_t new_reserved, std::vector<BlockId>* released) {
  released->clear();
  Chain& chain = own_[Index(choice)];
  const auto returned = static_cast<std::int64_t>(chain.blocks.size());
  ReturnFromBack(&chain, released);
  const std::int64_t held = held_ - returned;
  BERTH_CHECK(held <= new_reserved && new_reserved <= reserved_);
  pool_->AddUnspent(holder_, (new_reserved - held) - (reserved_ - held_));
  held_ = held;
  reserved_ = new_reserved;
}

void BlockReservation::SwapOwn(std::int32_t a, std::int32_t b) {
  BERTH_CHECK(own_blocks(a).size() == own_blocks(b).size());
  std::swap(own_[Index(a)], own_[Index(b)]);
}

void BlockReservation::AppendTable(std::int32_t choice, std::vector<BlockId>* out) const {
  const std::span<const BlockId> own = own_blocks(choice);
  out->insert(out->end(), shared_.blocks.begin(), shared_.blocks.end());
  out->insert(out->end(), own.begin(), own.end());
}

}  // namespace berth
