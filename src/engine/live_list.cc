#include "engine/live_list.h"

#include <utility>

#include "engine/step_loop.h"

namespace berth {
namespace {

LiveRow::State StateOf(const LiveRequest& request) {
  switch (request.phase) {
    case LiveRequest::Phase::kWaiting:
      return LiveRow::State::kQueued;
    case LiveRequest::Phase::kParked:
      return LiveRow::State::kPreempted;
    case LiveRequest::Phase::kRunning:
      break;
  }
  return request.meter.has_token() ? LiveRow::State::kDecode : LiveRow::State::kPrefill;
}

}  // namespace

// What is not known (it ended, or is being tokenized still) has no row.
void StepLoop::AnswerLiveQuestions(TimePoint now) {
  for (const std::shared_ptr<LiveQuestion>& question : mail_.live_questions) {
    std::vector<LiveRow> rows;
    rows.reserve(question->tickets().size());
    for (LiveTicket& ticket : question->tickets()) {
      const auto found = by_ticket_.find(ticket.ticket);
      if (found != by_ticket_.end()) rows.push_back(Describe(std::move(ticket), *found->second, now));
    }
    question->Answer(std::move(rows));
  }
}

LiveRow StepLoop::Describe(LiveTicket ticket, const LiveRequest& request, TimePoint now) const {
  const GenerateSpec& spec = request.facts->spec;
  LiveRow row;
  row.ticket = std::move(ticket);
  row.state = StateOf(request);
  row.age = now - spec.arrival;
  row.prompt_tokens = request.facts->demand.prompt_tokens;
  for (const LiveRequest::Choice& choice : request.choices) row.output_tokens += choice.output_tokens;
  if (request.phase == LiveRequest::Phase::kRunning) {
    const BlockReservation* blocks = scheduler_->Blocks(request.key);
    row.reserved_blocks = blocks->reserved();
    row.held_blocks = blocks->held();
  }
  row.preemptions = request.meter.preemptions();
  if (spec.deadline != kNoDeadline) row.time_left = spec.deadline - now;
  return row;
}

}  // namespace berth
