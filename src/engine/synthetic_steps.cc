#include "engine/synthetic_steps.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace berth {
namespace {

constexpr std::chrono::milliseconds kCalibrationTime{250};
constexpr TokenId kAnyToken = 0;

const SamplingSpec& Greedy() {
  static const SamplingSpec spec = [] {
    SamplingSpec greedy;
    greedy.temperature = 0.0F;
    return greedy;
  }();
  return spec;
}

// Cheap ones first, each term of the model more than once. The first step warms up and teaches nothing.
constexpr SyntheticWork kCalibration[] = {
    {1, 8, 0},   {1, 1, 15}, {4, 1, 15},  {1, 16, 0}, {1, 1, 255}, {2, 1, 15}, {1, 32, 0},  {8, 1, 15},
    {4, 1, 127}, {1, 8, 0},  {1, 16, 64}, {2, 1, 63}, {16, 1, 15}, {1, 24, 0}, {8, 1, 127}, {1, 1, 15},
};

bool Fits(const SyntheticWork& work, std::int64_t max_sequences, const BackendInfo& info) {
  return work.sequences <= max_sequences && work.sequences * work.tokens <= info.max_step_tokens &&
         work.position + work.tokens <= info.max_context_tokens;
}

}  // namespace

StepWork SyntheticWork::work() const {
  const std::int64_t end = std::int64_t{position} + tokens;
  if (tokens == 1) return {.decode_sequences = sequences, .decode_kv_tokens = sequences * end};
  return {.prefill_tokens = std::int64_t{sequences} * tokens, .prefill_kv_products = sequences * tokens * end};
}

std::optional<SyntheticStep> SyntheticStep::Make(const SyntheticWork& work, std::int64_t number, BlockPool* pool) {
  const std::int32_t end = work.position + work.tokens;
  ReservationSpec spec;
  spec.blocks = work.sequences * CeilDiv(end, pool->shape().block_tokens);
  spec.choices = work.sequences;
  std::optional<BlockReservation> blocks = pool->Reserve(spec, /*salt=*/0);
  if (!blocks.has_value()) return std::nullopt;

  SyntheticStep step;
  step.blocks_ = *std::move(blocks);
  step.tokens_.assign(static_cast<std::size_t>(end), kAnyToken);
  StepPlan& plan = step.plan_;
  plan.step = number;
  for (std::int32_t sequence = 0; sequence < work.sequences; ++sequence) {
    step.blocks_.Cover(sequence, end);
    StepRow row;
    row.sequence = -1 - sequence;  // nobody's
    row.first_position = work.position;
    row.token_begin = static_cast<std::int32_t>(plan.token_ids.size());
    row.num_tokens = work.tokens;
    row.block_begin = static_cast<std::int32_t>(plan.block_ids.size());
    plan.token_ids.insert(plan.token_ids.end(), static_cast<std::size_t>(work.tokens), kAnyToken);
    step.blocks_.AppendTable(sequence, &plan.block_ids);
    row.num_blocks = static_cast<std::int32_t>(plan.block_ids.size()) - row.block_begin;
    plan.rows.push_back(row);
    LogitRow logit;
    logit.token_index = row.token_begin + row.num_tokens - 1;
    logit.sampling.spec = &Greedy();
    logit.sampling.choice_index = sequence;
    logit.sampling.history = step.tokens_;
    logit.sampling.prompt_tokens = end;
    plan.logit_rows.push_back(logit);
  }
  return step;
}

absl::Status Calibrate(int steps, std::int64_t max_sequences, const BackendInfo& info, const RunStep& run,
                       BlockPool* pool, StepCostModel* model) {
  const auto end = std::chrono::steady_clock::now() + kCalibrationTime;
  StepResult result;
  int done = 0;
  for (const SyntheticWork& work : kCalibration) {
    if (done >= steps || std::chrono::steady_clock::now() >= end) break;
    if (!Fits(work, max_sequences, info)) continue;
    const std::optional<SyntheticStep> step = SyntheticStep::Make(work, /*number=*/-1, pool);
    if (!step.has_value()) continue;
    if (absl::Status status = run(step->plan(), &result); !status.ok()) return status;
    if (done++ > 0) model->Observe(work.work(), result.busy);
  }
  return absl::OkStatus();
}

}  // namespace berth
