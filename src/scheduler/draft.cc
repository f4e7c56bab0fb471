// Most of the next step's rows, prepared while a step runs.
#include <algorithm>

#include "base/check.h"
#include "base/index.h"
#include "scheduler/scheduler.h"

namespace berth {
void Scheduler::DraftStep() {
  BERTH_CHECK_MSG(in_flight_ == 1, "what is planned ahead is not drafted");
  draft_.clear();
  draft_block_ids_.clear();
  if (Index(table_blocks_) > draft_block_ids_.capacity()) draft_block_ids_.reserve(2 * Index(table_blocks_));
  const PlannedStep& step = InFlight(0);
  for (const PlannedDraw& drawn : step.draws) {
    const Part& part = step.parts[Index(drawn.part)];
    if (IsGhost(part, drawn.choice) || !part.request->forked) continue;
    // Whatever draws a token now feeds it in the next step, unless it ends with it.
    Request* r = part.request;
    if (!IsComplete(*r, r->choices[Index(drawn.choice)])) Draft(r, drawn.choice);
  }
}

void Scheduler::Draft(Request* r, std::int32_t choice) {
  Choice& c = r->choices[Index(choice)];
  const auto length = static_cast<std::int64_t>(c.history.size());  // without the token that is drawn
  c.drafted = static_cast<std::int32_t>(draft_.size());
  DraftedRow& drafted = draft_.emplace_back();
  StepRow& row = drafted.row;
  row.sequence = c.sequence;
  row.first_position = static_cast<std::int32_t>(length);
  row.num_tokens = 1;
  row.block_begin = static_cast<std::int32_t>(draft_block_ids_.size());
  r->blocks->AppendTable(choice, &draft_block_ids_);
  row.num_blocks = static_cast<std::int32_t>(draft_block_ids_.size()) - row.block_begin;
  // Which block comes next is known only when the step is planned; the last one holds its place.
  drafted.takes_block = row.num_blocks * pool_->shape().block_tokens <= length;
  if (drafted.takes_block) {
    draft_block_ids_.push_back(draft_block_ids_.back());
    ++row.num_blocks;
  }
  drafted.logits = DecodeLogits(*r, choice, length + 1);
}

// The row that was drafted for this choice, if it still is what the choice needs.
Scheduler::DraftedRow* Scheduler::Drafted(const Choice& c) {
  if (c.drafted < 0 || c.drafted >= std::ssize(draft_)) return nullptr;
  DraftedRow& drafted = draft_[Index(c.drafted)];
  return drafted.row.sequence == c.sequence && drafted.row.first_position == c.stored ? &drafted : nullptr;
}

void Scheduler::EmitDrafted(Request* r, std::int32_t choice, DraftedRow* drafted) {
  const Choice& c = r->choices[Index(choice)];
  const StepRow& row = drafted->row;
  if (drafted->takes_block) {
    r->blocks->Cover(choice, c.ahead + 1);
    step_->plan.block_ids[Index(row.block_begin + row.num_blocks - 1)] = r->blocks->own_blocks(choice).back();
  }
  EmitRow(r, choice, row);
  drafted->logits.token_index = step_->plan.rows.back().token_begin;
  AddDraw(r, choice, drafted->logits);
  TakeAhead(r, choice, c.ahead + 1);
}

}  // namespace berth
