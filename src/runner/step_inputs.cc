#include "runner/step_inputs.h"

#include "base/check.h"

namespace berth {

StepInputs::StepInputs(const StepLimits& limits)
    : limits_(limits),
      writers_(static_cast<std::size_t>(limits.pool.num_blocks)),
      copied_(static_cast<std::size_t>(limits.pool.num_blocks)),
      host_named_(static_cast<std::size_t>(limits.pool.host_blocks)) {
  const auto tokens = static_cast<std::size_t>(limits.max_step_tokens);
  sequences_.reserve(tokens);
  positions_.reserve(tokens);
  slots_.reserve(tokens);
}

void StepInputs::Pack(const StepPlan& plan) {
  const bool copies = !plan.swap_out.empty() || !plan.swap_in.empty() || !plan.block_copies.empty();
  BERTH_CHECK(copies || !plan.token_ids.empty());
  BERTH_CHECK(plan.token_ids.size() <= static_cast<std::size_t>(limits_.max_step_tokens));
  PackTokens(plan);
  sequences_.clear();
  positions_.clear();
  slots_.clear();
  for (const StepRow& row : plan.rows) PackRow(plan, row);
  BERTH_CHECK(positions_.size() == plan.token_ids.size());

  ++stamp_;
  const auto rows = static_cast<std::int32_t>(plan.rows.size());
  for (std::int32_t i = 0; i < rows; ++i) ClaimWrittenBlocks(plan, i);
  for (std::int32_t i = 0; i < rows; ++i) CheckNobodyElseUsesThem(plan, i);
  PackLogitRows(plan);
  PackSwaps(plan);
  PackBlockCopies(plan);
}

void StepInputs::PackTokens(const StepPlan& plan) {
  BERTH_CHECK(limits_.carried_tokens || plan.carried_tokens.empty());
  auto carried = plan.carried_tokens.begin();
  for (std::size_t i = 0; i < plan.token_ids.size(); ++i) {
    const TokenId id = plan.token_ids[i];
    if (carried == plan.carried_tokens.end() || carried->token_index != static_cast<std::int32_t>(i)) {
      BERTH_CHECK(id >= 0 && id < limits_.vocab_size);
      continue;
    }
    BERTH_CHECK(id == kNoToken);
    BERTH_CHECK(carried->logit_row >= 0 && static_cast<std::size_t>(carried->logit_row) < draws_.size());
    BERTH_CHECK(draws_[static_cast<std::size_t>(carried->logit_row)]);
    ++carried;
  }
  BERTH_CHECK(carried == plan.carried_tokens.end());  // in order, and each inside the step
  token_ids_ = plan.token_ids;
  carried_tokens_ = plan.carried_tokens;
}

void StepInputs::PackRow(const StepPlan& plan, const StepRow& row) {
  const std::int32_t block_tokens = limits_.pool.block_tokens;
  // In order and without a gap: the next row begins where the one before ended.
  BERTH_CHECK(row.token_begin == static_cast<std::int32_t>(positions_.size()));
  BERTH_CHECK(row.num_tokens >= 1);
  BERTH_CHECK(row.num_tokens <= static_cast<std::int32_t>(plan.token_ids.size()) - row.token_begin);
  BERTH_CHECK(row.first_position >= 0);
  BERTH_CHECK(row.first_position <= limits_.max_context_tokens - row.num_tokens);
  const std::int32_t kv_tokens = row.first_position + row.num_tokens;
  BERTH_CHECK(row.block_begin >= 0 && row.num_blocks >= 0);
  BERTH_CHECK(static_cast<std::int64_t>(row.block_begin) + row.num_blocks <=
              static_cast<std::int64_t>(plan.block_ids.size()));
  BERTH_CHECK(row.num_blocks >= CeilDiv(kv_tokens, block_tokens));

  const BlockId* blocks = plan.block_ids.data() + row.block_begin;
  for (std::int32_t i = 0; i < row.num_blocks; ++i) {
    BERTH_CHECK(blocks[i] >= 0 && blocks[i] < limits_.pool.num_blocks);
  }
  sequences_.push_back({row.token_begin, row.num_tokens, row.first_position, kv_tokens, blocks});
  for (std::int32_t position = row.first_position; position < kv_tokens; ++position) {
    positions_.push_back(position);
    slots_.push_back(static_cast<std::int64_t>(blocks[position / block_tokens]) * block_tokens +
                     position % block_tokens);
  }
}

void StepInputs::ClaimWrittenBlocks(const StepPlan& plan, std::int32_t row_index) {
  const StepRow& row = plan.rows[static_cast<std::size_t>(row_index)];
  const std::int32_t last = (row.first_position + row.num_tokens - 1) / limits_.pool.block_tokens;
  for (std::int32_t i = row.first_position / limits_.pool.block_tokens; i <= last; ++i) {
    Writer& writer = writers_[static_cast<std::size_t>(plan.block_ids[static_cast<std::size_t>(row.block_begin + i)])];
    BERTH_CHECK(writer.stamp != stamp_);
    writer = {stamp_, row_index, i};
  }
}

// Blocks of a table beyond the tokens stored are not used yet and not looked at.
void StepInputs::CheckNobodyElseUsesThem(const StepPlan& plan, std::int32_t row_index) const {
  const StepRow& row = plan.rows[static_cast<std::size_t>(row_index)];
  const std::int64_t used = CeilDiv(row.first_position + row.num_tokens, limits_.pool.block_tokens);
  for (std::int32_t i = 0; i < used; ++i) {
    const Writer& writer =
        writers_[static_cast<std::size_t>(plan.block_ids[static_cast<std::size_t>(row.block_begin + i)])];
    BERTH_CHECK(writer.stamp != stamp_ || (writer.row == row_index && writer.table_index == i));
  }
}

void StepInputs::PackLogitRows(const StepPlan& plan) {
  std::int32_t previous = 0;
  draws_.clear();
  for (const LogitRow& row : plan.logit_rows) {
    // The choices of one request may draw from the same position.
    BERTH_CHECK(row.token_index >= previous && row.token_index < num_tokens());
    previous = row.token_index;
    BERTH_CHECK(row.top_logprobs >= kNoLogprobs && row.top_logprobs <= limits_.vocab_size);
    if (row.target == kNoToken) {
      BERTH_CHECK(row.sampling.spec != nullptr);
    } else {
      BERTH_CHECK(row.target >= 0 && row.target < limits_.vocab_size);
    }
    draws_.push_back(row.target == kNoToken);
  }
  logit_rows_ = plan.logit_rows;
}

// A host block is read or written by one copy of a step; a block that comes in is not one that goes out. A block may go
// out twice: a shared one, for two sequences.
void StepInputs::PackSwaps(const StepPlan& plan) {
  for (const SwapCopy& copy : plan.swap_out) {
    BERTH_CHECK(copy.block >= 0 && copy.block < limits_.pool.num_blocks);
    ClaimHostBlock(copy);
    copied_[static_cast<std::size_t>(copy.block)].swapped_out = stamp_;
  }
  for (const SwapCopy& copy : plan.swap_in) {
    BERTH_CHECK(copy.block >= 0 && copy.block < limits_.pool.num_blocks);
    ClaimHostBlock(copy);
    Copied& block = copied_[static_cast<std::size_t>(copy.block)];
    BERTH_CHECK(block.swapped_out != stamp_);
    BERTH_CHECK(block.swapped_in != stamp_);
    block.swapped_in = stamp_;
  }
  swap_out_ = plan.swap_out;
  swap_in_ = plan.swap_in;
}

void StepInputs::ClaimHostBlock(const SwapCopy& copy) {
  BERTH_CHECK(copy.host_block >= 0 && copy.host_block < limits_.pool.host_blocks);
  std::int64_t& named = host_named_[static_cast<std::size_t>(copy.host_block)];
  BERTH_CHECK(named != stamp_);
  named = stamp_;
}

// Block copies may run in any order: no block is the target of two, and none is both source and target. Nor is one that
// was just swapped in overwritten.
void StepInputs::PackBlockCopies(const StepPlan& plan) {
  for (const BlockCopy& copy : plan.block_copies) {
    BERTH_CHECK(copy.from >= 0 && copy.from < limits_.pool.num_blocks);
    BERTH_CHECK(copy.to >= 0 && copy.to < limits_.pool.num_blocks);
    Copied& target = copied_[static_cast<std::size_t>(copy.to)];
    BERTH_CHECK(target.swapped_in != stamp_);
    BERTH_CHECK(target.to != stamp_);
    target.to = stamp_;
  }
  for (const BlockCopy& copy : plan.block_copies) {
    BERTH_CHECK(copied_[static_cast<std::size_t>(copy.from)].to != stamp_);
  }
  block_copies_ = plan.block_copies;
}

}  // namespace berth
