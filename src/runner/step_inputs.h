// A StepPlan with every rule of step.h checked, and what follows from it: what the transformer reads instead of the
// plan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "berth/kv.h"
#include "berth/step.h"

namespace berth {

// What a plan must keep within.
struct StepLimits {
  std::int32_t vocab_size = 0;
  std::int32_t max_context_tokens = 0;
  std::int32_t max_step_tokens = 0;
  KvPoolShape pool;
  bool carried_tokens = false;  // whether a step may feed what the one packed before draws
};

// One sequence's part of the step.
struct SequenceInput {
  std::int32_t token_begin = 0;        // into token_ids
  std::int32_t query_tokens = 0;       // ≥ 1
  std::int32_t first_position = 0;     // of the first query token; kv_tokens - query_tokens
  std::int32_t kv_tokens = 0;          // stored when the step's K and V are
  const BlockId* block_ids = nullptr;  // one per block_tokens positions, borrowed from the plan
};

// Keeps its memory between steps. Borrows the plan it packed.
class StepInputs {
 public:
  explicit StepInputs(const StepLimits& limits);

  // Crashes where the plan breaks a rule: an id outside the vocabulary or the pools, a table too short, tokens that no
  // row or several rows claim, a position outside the context, a block that is written while another row uses it,
  // copies that overwrite each other's blocks or depend on their order, a carried token that has an id or that no row
  // of the plan packed before draws, nothing to do.
  void Pack(const StepPlan& plan);

  std::int32_t num_tokens() const { return static_cast<std::int32_t>(token_ids_.size()); }
  std::span<const TokenId> token_ids() const { return token_ids_; }  // kNoToken where it is a carried one
  std::span<const CarriedToken> carried_tokens() const { return carried_tokens_; }
  std::span<const SequenceInput> sequences() const { return sequences_; }
  std::span<const LogitRow> logit_rows() const { return logit_rows_; }
  std::span<const SwapCopy> swap_out() const { return swap_out_; }
  std::span<const SwapCopy> swap_in() const { return swap_in_; }
  std::span<const BlockCopy> block_copies() const { return block_copies_; }
  // Per token: its position in its sequence, and where its K and V go (block id · block_tokens + place in the block).
  std::span<const std::int32_t> positions() const { return positions_; }
  std::span<const std::int64_t> slots() const { return slots_; }

 private:
  void PackTokens(const StepPlan& plan);
  void PackRow(const StepPlan& plan, const StepRow& row);
  void ClaimWrittenBlocks(const StepPlan& plan, std::int32_t row_index);
  void CheckNobodyElseUsesThem(const StepPlan& plan, std::int32_t row_index) const;
  void PackLogitRows(const StepPlan& plan);
  void PackSwaps(const StepPlan& plan);
  void ClaimHostBlock(const SwapCopy& copy);
  void PackBlockCopies(const StepPlan& plan);

  const StepLimits limits_;
  std::span<const TokenId> token_ids_;
  std::span<const CarriedToken> carried_tokens_;
  std::span<const LogitRow> logit_rows_;
  std::span<const SwapCopy> swap_out_;
  std::span<const SwapCopy> swap_in_;
  std::span<const BlockCopy> block_copies_;
  std::vector<SequenceInput> sequences_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int64_t> slots_;

  // Per block of the pool: who writes it in this step. A stamp of an earlier step says nothing.
  struct Writer {
    std::int64_t stamp = 0;
    std::int32_t row = 0;
    std::int32_t table_index = 0;
  };
  std::vector<Writer> writers_;
  // Per block of the pool: the stamp of the last step whose copies named it so.
  struct Copied {
    std::int64_t swapped_out = 0;
    std::int64_t swapped_in = 0;
    std::int64_t to = 0;
  };
  std::vector<Copied> copied_;
  std::vector<bool> draws_;               // by logit row of the plan packed last
  std::vector<std::int64_t> host_named_;  // per block of the host's pool: the stamp of the last step that named it
  std::int64_t stamp_ = 0;
};

}  // namespace berth
