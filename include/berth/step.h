// One forward pass as plain data: what the scheduler decides and the backend executes. Nothing in it needs tensors or
// weights, so both sides are tested with literals.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "berth/event.h"
#include "berth/request.h"
#include "berth/units.h"

namespace berth {

// One sequence's part of a step: `num_tokens` new tokens at positions first_position .. first_position + num_tokens
// - 1. A decode row has one token; a prefill chunk has many; a step mixes both.
struct StepRow {
  SequenceId sequence = 0;
  std::int32_t first_position = 0;  // = tokens of this sequence whose K and V are stored already
  std::int32_t token_begin = 0;     // into StepPlan::token_ids
  std::int32_t num_tokens = 0;      // ≥ 1
  std::int32_t block_begin = 0;     // into StepPlan::block_ids: this sequence's block table, in order of position
  std::int32_t num_blocks = 0;      // ≥ ⌈(first_position + num_tokens) / block_tokens⌉
};

// What drawing a token needs besides the logits. `spec`, `history` and `banned` are borrowed from the sequence and stay
// unchanged until the step's result is taken.
struct SamplingInput {
  const SamplingSpec* spec = nullptr;
  std::int32_t choice_index = 0;
  // Prompt and output ids so far; the position of the token to draw is history.size(), and one more where the row's own
  // token is a carried one: that belongs to the history, but is not known yet. The random numbers are a function of
  // (seed, choice_index, position) alone.
  std::span<const TokenId> history;
  std::int32_t prompt_tokens = 0;  // how many of `history` are the prompt
  // Never drawn here (stop tokens before min_output_tokens). Sorted.
  std::span<const TokenId> banned;
};

// A position whose next-token distribution is wanted. Logits are computed for these alone.
struct LogitRow {
  std::int32_t token_index = 0;  // into StepPlan::token_ids
  // kNoToken: draw a token as `sampling` says. Otherwise: report this token's log-probability, draw nothing.
  TokenId target = kNoToken;
  std::int32_t top_logprobs = kNoLogprobs;  // as OutputSpec::logprobs; a target row reports its target's at least
  SamplingInput sampling;                   // unused when target is set
};

// A token that the step before draws and this one feeds, so that its id is not known when this one is planned.
struct CarriedToken {
  std::int32_t token_index = 0;  // into token_ids, which has kNoToken there
  std::int32_t logit_row = 0;    // into the logit_rows of the step submitted just before: one that draws
};

// A block's K and V copied to another block before any row of the step writes.
struct BlockCopy {
  BlockId from = kNoBlock;
  BlockId to = kNoBlock;
};

// A block's K and V copied between the pool and the host's memory.
struct SwapCopy {
  BlockId block = kNoBlock;
  BlockId host_block = kNoBlock;
};

// A step does, in this order: every swap_out, every swap_in, every block copy, then its rows. It may have copies and no
// rows.
struct StepPlan {
  std::int64_t step = 0;           // names the step in its result
  std::vector<SwapCopy> swap_out;  // block -> host_block; its memory may be anybody's right after
  std::vector<SwapCopy> swap_in;   // host_block -> block; no block or host_block that swap_out names
  // Where the choices of a group part, each gets the prompt's partial block. In any order: no `to` twice, none a
  // `from`.
  std::vector<BlockCopy> block_copies;
  std::vector<TokenId> token_ids;
  // Ascending token_index. Only in a step that is submitted while the one before is in flight (backend.h).
  std::vector<CarriedToken> carried_tokens;
  std::vector<BlockId> block_ids;    // may hold more than the rows name
  std::vector<StepRow> rows;         // disjoint token ranges that cover token_ids in order
  std::vector<LogitRow> logit_rows;  // ascending token_index; equal ones where choices part

  // There is nothing to do.
  bool empty() const { return rows.empty() && swap_out.empty() && swap_in.empty() && block_copies.empty(); }

  // Empties the lists and keeps their memory, so that a planner can refill it without allocating.
  void Clear() {
    swap_out.clear();
    swap_in.clear();
    block_copies.clear();
    token_ids.clear();
    carried_tokens.clear();
    block_ids.clear();
    rows.clear();
    logit_rows.clear();
  }
};

// The answer to one LogitRow.
struct LogitResult {
  TokenId token = kNoToken;    // drawn, or the target
  float logprob = 0.0F;        // of `token`; valid when top_logprobs ≥ 0 or a target was given
  std::int32_t top_begin = 0;  // into StepResult::top
  std::int32_t num_top = 0;
};

struct StepResult {
  std::int64_t step = 0;
  std::vector<LogitResult> logits;  // one per StepPlan::logit_rows, same order
  std::vector<TopLogprob> top;      // best first within each result
  Duration busy{};                  // time the backend computed
};

}  // namespace berth
