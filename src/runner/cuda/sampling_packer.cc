#include "runner/cuda/sampling_packer.h"

#include <algorithm>

#include "base/check.h"

namespace berth {
namespace {

bool IsPenalised(const SamplingSpec& spec) {
  return spec.repetition_penalty != 1.0F || spec.presence_penalty != 0.0F || spec.frequency_penalty != 0.0F;
}

}  // namespace

void SamplingPacker::Pack(const StepInputs& inputs, const StepCounts& counts, const std::int32_t* logit_tokens,
                          cuda::SamplingRow* rows) {
  groups_.clear();
  ids_.clear();
  biases_.clear();
  top_entries_ = 0;
  const std::span<const CarriedToken> carried = inputs.carried_tokens();
  std::size_t next_carried = 0;
  for (std::int32_t i = 0; i < counts.logit_rows; ++i) {
    const bool fills_up = static_cast<std::size_t>(i) >= inputs.logit_rows().size();
    const LogitRow* row = fills_up ? nullptr : &inputs.logit_rows()[static_cast<std::size_t>(i)];
    const std::int64_t more = fills_up ? 0 : IdsOf(*row);
    if (groups_.empty() || groups_.back().rows == shape_.logit_group_rows ||
        groups_.back().num_ids + more > shape_.max_step_ids) {
      groups_.push_back({i, 0, static_cast<std::int64_t>(ids_.size()), 0, 0});
    }
    ++groups_.back().rows;
    if (fills_up) {
      rows[i] = {};
      rows[i].top_p = 1.0F;
      rows[i].repetition_penalty = 1.0F;
      rows[i].target = kNoToken;
      rows[i].top_logprobs = kNoLogprobs;
      rows[i].last_token = -1;
      continue;
    }
    while (next_carried < carried.size() && carried[next_carried].token_index < row->token_index) ++next_carried;
    const bool is_carried = next_carried < carried.size() && carried[next_carried].token_index == row->token_index;
    rows[i] = RowOf(*row, logit_tokens[i], is_carried);
  }
}

std::int64_t SamplingPacker::IdsOf(const LogitRow& row) {
  if (row.target != kNoToken) return 0;
  const std::size_t history = IsPenalised(*row.sampling.spec) ? row.sampling.history.size() : 0;
  return static_cast<std::int64_t>(history + row.sampling.banned.size() + row.sampling.spec->logit_bias.size());
}

cuda::SamplingIds SamplingPacker::Add(std::span<const TokenId> ids) {
  LogitGroup& group = groups_.back();
  const cuda::SamplingIds added{group.num_ids, static_cast<std::int32_t>(ids.size())};
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  biases_.resize(ids_.size());
  group.num_ids += added.count;
  BERTH_CHECK(group.num_ids <= shape_.max_step_ids);
  return added;
}

cuda::SamplingRow SamplingPacker::RowOf(const LogitRow& row, std::int32_t logit_token, bool carried) {
  cuda::SamplingRow to{};
  to.target = row.target;
  to.top_logprobs = row.target != kNoToken ? std::max(row.top_logprobs, 0) : row.top_logprobs;
  BERTH_CHECK(row.top_logprobs <= shape_.max_top_logprobs);
  to.top_begin = top_entries_;
  top_entries_ += std::max(row.top_logprobs, 0);
  to.last_token = -1;
  to.top_p = 1.0F;
  to.repetition_penalty = 1.0F;
  if (row.target != kNoToken) return to;
  const SamplingSpec& spec = *row.sampling.spec;
  to.temperature = spec.temperature;
  to.top_p = spec.top_p;
  to.min_p = spec.min_p;
  to.top_k = spec.top_k;
  to.repetition_penalty = spec.repetition_penalty;
  to.presence_penalty = spec.presence_penalty;
  to.frequency_penalty = spec.frequency_penalty;
  to.choice_index = row.sampling.choice_index;
  to.seed = spec.seed;
  to.position = static_cast<std::int64_t>(row.sampling.history.size()) + (carried ? 1 : 0);
  to.prompt_tokens = row.sampling.prompt_tokens;
  if (!spec.logit_bias.empty()) {
    LogitGroup& group = groups_.back();
    to.bias = {group.num_ids, static_cast<std::int32_t>(spec.logit_bias.size())};
    for (const auto& [id, bias] : spec.logit_bias) {
      ids_.push_back(id);
      biases_.push_back(bias);
    }
    group.num_ids += to.bias.count;
    group.num_biases = group.num_ids;
  }
  to.banned = Add(row.sampling.banned);
  if (IsPenalised(spec)) {
    to.history = Add(row.sampling.history);
    if (carried) to.last_token = logit_token;
  }
  return to;
}

}  // namespace berth
