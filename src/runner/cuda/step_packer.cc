#include "runner/cuda/step_packer.h"

#include <algorithm>

#include "base/check.h"

namespace berth {

StepCounts StepPacker::Count(const StepInputs& inputs) {
  const auto rows = static_cast<std::int32_t>(inputs.sequences().size());
  BERTH_CHECK(rows <= shape_.max_rows);
  BERTH_CHECK(inputs.logit_rows().size() <= static_cast<std::size_t>(shape_.max_logit_rows));
  BERTH_CHECK(inputs.carried_tokens().size() <= static_cast<std::size_t>(shape_.max_rows));
  StepCounts counts;
  counts.tokens = inputs.num_tokens();
  counts.rows = rows;
  counts.logit_rows = static_cast<std::int32_t>(inputs.logit_rows().size());
  counts.carried = static_cast<std::int32_t>(inputs.carried_tokens().size());
  order_.clear();
  begins_.assign(static_cast<std::size_t>(rows), 0);
  std::int32_t next_token = 0;
  for (const bool decodes : {true, false}) {
    for (std::int32_t row = 0; row < rows; ++row) {
      const SequenceInput& sequence = inputs.sequences()[static_cast<std::size_t>(row)];
      if ((sequence.query_tokens == 1) != decodes) continue;
      order_.push_back(row);
      begins_[static_cast<std::size_t>(row)] = next_token;
      next_token += sequence.query_tokens;
      counts.chunks =
          std::max(counts.chunks, static_cast<std::int32_t>(CeilDiv(sequence.kv_tokens, kDecodeChunkTokens)));
      if (decodes) continue;
      ++counts.prefill_rows;
      if (shape_.tuned_attention) {
        counts.tiles += cuda::PrefillTiles(sequence.query_tokens, shape_.heads, shape_.kv_heads);
      }
    }
  }
  return counts;
}

void StepPacker::Write(const StepInputs& inputs, const StepCounts& counts, const StepArrays& to) const {
  WriteTokens(inputs, to);
  WriteRows(inputs, counts, to);
  if (shape_.tuned_attention) WriteTiles(inputs, counts, to);
  WriteLogitTokens(inputs, to);
  FillUp(inputs, counts, to);
}

void StepPacker::WriteTokens(const StepInputs& inputs, const StepArrays& to) const {
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const auto row = static_cast<std::size_t>(order_[i]);
    const SequenceInput& sequence = inputs.sequences()[row];
    const auto from = static_cast<std::size_t>(sequence.token_begin);
    const auto count = static_cast<std::size_t>(sequence.query_tokens);
    const std::int32_t begin = begins_[row];
    std::copy_n(inputs.slots().begin() + static_cast<std::ptrdiff_t>(from), count, to.slots + begin);
    std::copy_n(inputs.positions().begin() + static_cast<std::ptrdiff_t>(from), count, to.positions + begin);
    // A carried token's place is filled on the device.
    std::copy_n(inputs.token_ids().begin() + static_cast<std::ptrdiff_t>(from), count, to.token_ids + begin);
    if (to.token_rows == nullptr) continue;
    for (std::int32_t token = 0; token < sequence.query_tokens; ++token) {
      to.token_rows[begin + token] = static_cast<std::int32_t>(i);
      to.token_lengths[begin + token] = sequence.first_position + token + 1;
    }
  }
  if (inputs.carried_tokens().empty()) return;
  BERTH_CHECK(to.carried_rows != nullptr);
  std::size_t row = 0;
  for (std::size_t i = 0; i < inputs.carried_tokens().size(); ++i) {
    const CarriedToken& carried = inputs.carried_tokens()[i];
    while (row + 1 < inputs.sequences().size() && inputs.sequences()[row + 1].token_begin <= carried.token_index) ++row;
    to.carried_tokens[i] = DeviceToken(inputs, static_cast<std::int32_t>(row), carried.token_index);
    to.carried_rows[i] = carried.logit_row;
  }
}

// What of a table lies behind the stored tokens is not looked at, and still names blocks that there are.
void StepPacker::WriteRows(const StepInputs& inputs, const StepCounts& counts, const StepArrays& to) const {
  const std::int32_t max_blocks = shape_.MaxBlocks(counts.chunks);
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const SequenceInput& sequence = inputs.sequences()[static_cast<std::size_t>(order_[i])];
    std::int32_t* table = to.block_tables + static_cast<std::ptrdiff_t>(i) * max_blocks;
    const auto used = static_cast<std::int32_t>(CeilDiv(sequence.kv_tokens, shape_.pool.block_tokens));
    std::copy_n(sequence.block_ids, used, table);
    std::fill(table + used, table + max_blocks, 0);
    to.kv_lengths[i] = sequence.kv_tokens;
  }
}

void StepPacker::WriteTiles(const StepInputs& inputs, const StepCounts& counts, const StepArrays& to) const {
  cuda::PrefillTile* tile = to.tiles;
  std::int32_t end = counts.decode_rows();
  for (std::int32_t i = 0; i < counts.prefill_rows; ++i) {
    const auto row = static_cast<std::size_t>(order_[static_cast<std::size_t>(counts.decode_rows() + i)]);
    const SequenceInput& sequence = inputs.sequences()[row];
    const std::int32_t tiles = cuda::PrefillTiles(sequence.query_tokens, shape_.heads, shape_.kv_heads);
    for (std::int32_t number = 0; number < tiles; ++number) *tile++ = {i, number * cuda::kPrefillTileRows};
    to.token_begins[i] = begins_[row];
    end = begins_[row] + sequence.query_tokens;
  }
  to.token_begins[counts.prefill_rows] = end;
}

void StepPacker::WriteLogitTokens(const StepInputs& inputs, const StepArrays& to) const {
  std::size_t row = 0;
  for (std::size_t i = 0; i < inputs.logit_rows().size(); ++i) {
    const std::int32_t token = inputs.logit_rows()[i].token_index;
    while (row + 1 < inputs.sequences().size() && inputs.sequences()[row + 1].token_begin <= token) ++row;
    to.logit_tokens[i] = DeviceToken(inputs, static_cast<std::int32_t>(row), token);
  }
}

void StepPacker::FillUp(const StepInputs& inputs, const StepCounts& counts, const StepArrays& to) const {
  const std::int32_t max_blocks = shape_.MaxBlocks(counts.chunks);
  for (auto row = static_cast<std::int32_t>(order_.size()); row < counts.rows; ++row) {
    std::int32_t* table = to.block_tables + static_cast<std::ptrdiff_t>(row) * max_blocks;
    std::fill(table, table + max_blocks, 0);
    to.kv_lengths[row] = 0;
  }
  for (std::int32_t token = inputs.num_tokens(); token < counts.tokens; ++token) {
    to.slots[token] = -1;
    to.positions[token] = 0;
    to.token_ids[token] = 0;
    if (to.token_rows == nullptr) continue;
    to.token_rows[token] = 0;
    to.token_lengths[token] = 0;
  }
  for (auto i = static_cast<std::int32_t>(inputs.logit_rows().size()); i < counts.logit_rows; ++i) {
    to.logit_tokens[i] = 0;
  }
}

bool StepPacker::OnlyDecodes(const StepInputs& inputs) {
  if (inputs.logit_rows().size() != inputs.sequences().size()) return false;
  for (std::size_t i = 0; i < inputs.sequences().size(); ++i) {
    if (inputs.sequences()[i].query_tokens != 1) return false;
    if (inputs.logit_rows()[i].token_index != static_cast<std::int32_t>(i)) return false;
  }
  return !inputs.sequences().empty();
}

}  // namespace berth
