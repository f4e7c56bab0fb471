// The request that holds KV blocks: what its next step is, and what a step's result means for it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "berth/clock.h"
#include "berth/event.h"
#include "berth/step.h"
#include "berth/units.h"
#include "engine/output_stream.h"
#include "engine/request_queue.h"
#include "engine/usage_meter.h"
#include "kv/block_pool.h"
#include "tokenizer/tokenizer.h"

namespace berth {

// Its life: Start, then PlanStep and ApplyStep in turn until finished(); at any point between steps FinishAtDeadline,
// or simply the end. Sends every event but the last (Completed, Failed), which the engine sends once the blocks are
// back. Engine thread only; neither copied nor moved, since plans borrow from it.
class RunningRequest {
 public:
  // What all requests share; outlives them.
  struct Setting {
    const Tokenizer* tokenizer = nullptr;
    std::int32_t max_step_tokens = 0;
    std::span<const TokenId> never_drawn;  // ids that are no tokens. Sorted.
  };

  // REQUIRES: `blocks` reserves what `queued.demand` says.
  RunningRequest(const Setting& setting, QueuedRequest queued, BlockReservation blocks, SequenceId sequence,
                 TimePoint now);
  RunningRequest(const RunningRequest&) = delete;
  RunningRequest& operator=(const RunningRequest&) = delete;

  // Sends Admitted.
  void Start();

  // Fills the (empty) plan with the next prefill chunk, or the last token to decode, and takes the blocks it writes.
  void PlanStep(TimePoint now, StepPlan* plan);
  // The result of that plan. Sends what it made: TokenDelta, Finished.
  void ApplyStep(const StepResult& result, TimePoint now);

  // Ends the output here. REQUIRES: has_output() and not finished().
  void FinishAtDeadline();

  bool finished() const { return finished_; }
  bool has_output() const { return meter_.output_tokens() > 0; }
  TicketNumber ticket() const { return ticket_; }
  TimePoint deadline() const { return spec_.deadline; }
  // Whether what there is now is an answer when the deadline passes.
  bool answers_at_deadline() const { return has_output() && spec_.partial_at_deadline; }
  const std::shared_ptr<EventSink>& sink() const { return sink_; }
  Usage usage(TimePoint now) const { return meter_.At(now); }
  std::vector<TokenLogprob> TakePromptLogprobs() { return std::move(prompt_logprobs_); }

 private:
  void PlanLogitRows(StepPlan* plan);
  void AddOutputToken(const StepResult& result, const LogitResult& drawn, TimePoint now);

  const Setting setting_;
  const TicketNumber ticket_;
  const GenerateSpec spec_;
  const std::shared_ptr<EventSink> sink_;
  const KvDemand demand_;
  const SequenceId sequence_;
  const std::size_t prompt_tokens_;
  std::vector<TokenId> history_;    // prompt, then output
  std::size_t stored_tokens_ = 0;   // of history_, whose K and V the blocks hold
  std::size_t planned_tokens_ = 0;  // that the step under way stores
  BlockReservation blocks_;
  UsageMeter meter_;
  OutputStream output_;
  std::vector<TokenLogprob> prompt_logprobs_;
  bool finished_ = false;
};

}  // namespace berth
