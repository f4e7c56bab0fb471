#include "engine/running_request.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace berth {
namespace {

TokenLogprob ToTokenLogprob(const StepResult& result, const LogitResult& logit) {
  const auto first = result.top.begin() + logit.top_begin;
  return {.token_id = logit.token, .logprob = logit.logprob, .top = {first, first + logit.num_top}};
}

}  // namespace

RunningRequest::RunningRequest(const Setting& setting, QueuedRequest queued, BlockReservation blocks,
                               SequenceId sequence, TimePoint now)
    : setting_(setting),
      ticket_(queued.ticket),
      spec_(std::move(queued.request.spec)),
      sink_(std::move(queued.sink)),
      demand_(queued.demand),
      sequence_(sequence),
      prompt_tokens_(queued.request.prompt.size()),
      history_(std::move(queued.request.prompt)),
      blocks_(std::move(blocks)),
      meter_(demand_.prompt_tokens, blocks_.reserved(), spec_.arrival, now),
      output_(setting.tokenizer, &spec_, history_, static_cast<std::int32_t>(demand_.max_output_tokens),
              setting.never_drawn) {
  BERTH_CHECK(blocks_.reserved() == demand_.worst_blocks);
  if (spec_.output.prompt_logprobs != kNoLogprobs) prompt_logprobs_.reserve(prompt_tokens_ - 1);
}

void RunningRequest::Start() {
  sink_->OnEvent(Admitted{.request_id = spec_.request_id,
                          .reserved_blocks = blocks_.reserved(),
                          .queue_time = meter_.queue_time(),
                          .max_output_tokens = demand_.max_output_tokens,
                          .seed = spec_.sampling.seed,
                          .prompt_tokens = demand_.prompt_tokens,
                          .cached_tokens = 0});
}

void RunningRequest::PlanStep(TimePoint now, StepPlan* plan) {
  BERTH_CHECK(!finished_ && planned_tokens_ == 0);
  // After the prompt exactly one token is not stored yet: the last one drawn.
  planned_tokens_ = std::min(history_.size() - stored_tokens_, static_cast<std::size_t>(setting_.max_step_tokens));
  blocks_.Cover(/*choice=*/0, static_cast<std::int64_t>(stored_tokens_ + planned_tokens_));
  meter_.SetHeldBlocks(blocks_.held(), now);

  const auto new_tokens = std::span(history_).subspan(stored_tokens_, planned_tokens_);
  plan->token_ids.assign(new_tokens.begin(), new_tokens.end());
  blocks_.AppendTable(/*choice=*/0, &plan->block_ids);
  plan->rows.push_back({.sequence = sequence_,
                        .first_position = static_cast<std::int32_t>(stored_tokens_),
                        .token_begin = 0,
                        .num_tokens = static_cast<std::int32_t>(planned_tokens_),
                        .block_begin = 0,
                        .num_blocks = static_cast<std::int32_t>(blocks_.held())});
  PlanLogitRows(plan);
}

void RunningRequest::PlanLogitRows(StepPlan* plan) {
  const std::size_t end = stored_tokens_ + planned_tokens_;
  // Position i tells how likely prompt token i + 1 was, also when that one is in the next chunk.
  if (spec_.output.prompt_logprobs != kNoLogprobs) {
    for (std::size_t i = stored_tokens_; i < std::min(end, prompt_tokens_ - 1); ++i) {
      plan->logit_rows.push_back({.token_index = static_cast<std::int32_t>(i - stored_tokens_),
                                  .target = history_[i + 1],
                                  .top_logprobs = spec_.output.prompt_logprobs,
                                  .sampling = {}});
    }
  }
  if (end < history_.size()) return;  // the prompt goes on in the next chunk
  plan->logit_rows.push_back({.token_index = static_cast<std::int32_t>(planned_tokens_ - 1),
                              .target = kNoToken,
                              .top_logprobs = spec_.output.logprobs,
                              .sampling = {.spec = &spec_.sampling,
                                           .choice_index = 0,
                                           .history = history_,
                                           .prompt_tokens = static_cast<std::int32_t>(prompt_tokens_),
                                           .banned = output_.banned()}});
}

void RunningRequest::ApplyStep(const StepResult& result, TimePoint now) {
  BERTH_CHECK(planned_tokens_ > 0);
  stored_tokens_ += std::exchange(planned_tokens_, 0);
  meter_.AddBusy(result.busy);
  const bool drew = stored_tokens_ == history_.size();
  BERTH_CHECK(!drew || !result.logits.empty());
  const std::size_t targets = result.logits.size() - (drew ? 1 : 0);
  for (const LogitResult& logit : std::span(result.logits).first(targets)) {
    prompt_logprobs_.push_back(ToTokenLogprob(result, logit));
  }
  if (drew) AddOutputToken(result, result.logits.back(), now);
}

void RunningRequest::AddOutputToken(const StepResult& result, const LogitResult& drawn, TimePoint now) {
  if (!has_output() && spec_.output.echo_prompt) {
    sink_->OnEvent(TokenDelta{.index = 0, .text = output_.TakePromptText(), .token_ids = {}, .logprobs = {}});
  }
  history_.push_back(drawn.token);
  meter_.AddOutputToken(now);
  TokenDelta delta{.index = 0, .text = {}, .token_ids = {drawn.token}, .logprobs = {}};
  if (spec_.output.logprobs != kNoLogprobs) delta.logprobs.push_back(ToTokenLogprob(result, drawn));
  std::optional<Finished> finished = output_.Append(drawn.token, &delta);
  sink_->OnEvent(std::move(delta));
  if (finished.has_value()) {
    finished_ = true;
    sink_->OnEvent(*std::move(finished));
  }
}

void RunningRequest::FinishAtDeadline() {
  BERTH_CHECK(has_output() && !finished_);
  TokenDelta delta;
  Finished finished = output_.EndAtDeadline(&delta);
  finished_ = true;
  if (!delta.text.empty()) sink_->OnEvent(std::move(delta));
  sink_->OnEvent(std::move(finished));
}

}  // namespace berth
