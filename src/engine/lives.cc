// How requests start, wait again and end.
#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "engine/refusals.h"
#include "engine/step_loop.h"

namespace berth {

using Phase = LiveRequest::Phase;
using Change = Entrance::Change;

// The scheduler has carried the plan out; this is what it means for the requests' callers.
void StepLoop::Digest(const AdmissionPlan& plan, TimePoint now) {
  for (const AdmissionPlan::Ending& ending : plan.end) EndByPlan(ending, now);
  for (const AdmissionPlan::Ending& ending : plan.too_often) EndByPlan(ending, now);
  for (const RequestKey key : plan.preempt) Park(key, now);
  for (const AdmissionPlan::Start& start : plan.admit) Start(start, now);
}

void StepLoop::Start(const AdmissionPlan::Start& start, TimePoint now) {
  LiveRequest* request = live_.at(start.key).get();
  EnterRunning(request);
  shared_.heartbeat->NoteProgress(Index(request->service_class()), now);
  changes_.push_back({request->facts->ticket, Change::Kind::kStarted});
  const std::int64_t cached_tokens = scheduler_->CachedTokens(start.key);
  request->meter.Start(start.reserved_blocks, cached_tokens, now);
  if (start.resumed) return;
  const RequestFacts& facts = *request->facts;
  const bool looks_up = facts.spec.output.prompt_logprobs == kNoLogprobs;
  shared_.metrics->OnStart({.service_class = facts.spec.service_class,
                            .tenant = facts.spec.tenant,
                            .prompt_tokens = facts.demand.prompt_tokens,
                            .looked_up_tokens = looks_up ? facts.demand.prompt_tokens : 0,
                            .cached_tokens = cached_tokens});
  AddRecord(OutputRecord::Kind::kAdmitted, request).admitted =
      std::make_unique<Admitted>(Admitted{.request_id = facts.spec.request_id,
                                          .reserved_blocks = start.reserved_blocks,
                                          .queue_time = request->meter.queue_time(now),
                                          .max_output_tokens = facts.demand.max_output_tokens,
                                          .seed = facts.spec.sampling.seed,
                                          .prompt_tokens = facts.demand.prompt_tokens,
                                          .cached_tokens = cached_tokens});
}

void StepLoop::Park(RequestKey key, TimePoint now) {
  const auto found = live_.find(key);
  if (found == live_.end()) return;  // preempted once too often
  LiveRequest* request = found->second.get();
  LeaveRunning(request);
  request->phase = Phase::kParked;
  request->meter.Park(now);
  const bool swapped = scheduler_->HostBlocks(key) > 0;
  shared_.metrics->OnPreemption(request->service_class(), swapped ? PreemptionMode::kSwap : PreemptionMode::kRecompute);
  changes_.push_back({request->facts->ticket, Change::Kind::kParked});
}

void StepLoop::EndByPlan(const AdmissionPlan::Ending& ending, TimePoint now) {
  LiveRequest* request = live_.at(ending.key).get();
  std::optional<Refusal> refusal = ending.refusal;
  switch (ending.refusal.reason) {
    case RefusalReason::kDrainTimeout:
      refusal = DrainTimeout();
      break;
    case RefusalReason::kBackendFault:
      refusal = BackendFault(fault_);
      break;
    case RefusalReason::kDeadlineExceeded:
      // What there is by then is an answer, where the caller said so.
      if (request->meter.has_token() && request->facts->spec.partial_at_deadline) refusal.reset();
      break;
    default:
      break;
  }
  End(request, std::move(refusal), now);
}

void StepLoop::EndChoice(LiveRequest* request, std::int32_t choice, TimePoint now) {
  request->choices[Index(choice)].ended = true;
  if (--request->live_choices > 0) {
    scheduler_->EndChoice(request->key, choice, admission_.BlocksAfterEndChoice(request->key), &released_);
    request->meter.SetReservedBlocks(admission_.EndChoice(request->key, released_, now), now);
    return;
  }
  std::int64_t tokens = request->facts->demand.prompt_tokens;
  for (const LiveRequest::Choice& c : request->choices) tokens += c.output_tokens;
  scheduler_->Remove(request->key);
  admission_.Finish(request->key, now, tokens);
  End(request, std::nullopt, now);
}

// The core knows it no more.
void StepLoop::End(LiveRequest* request, std::optional<Refusal> refusal, TimePoint now) {
  shared_.heartbeat->NoteProgress(Index(request->service_class()), now);
  const bool ran = request->phase == Phase::kRunning;
  if (ran) LeaveRunning(request);
  changes_.push_back({request->facts->ticket, ran ? Change::Kind::kEndedRunning : Change::Kind::kEndedWaiting});
  by_ticket_.erase(request->facts->ticket);
  SendEnd(request, std::move(refusal), /*let_in=*/true, now);
  live_.erase(request->key);
}

void StepLoop::SendEnd(LiveRequest* request, std::optional<Refusal> refusal, bool let_in, TimePoint now) {
  OutputRecord& record = AddRecord(OutputRecord::Kind::kEnd, request);
  record.end = std::make_unique<RequestEnd>(RequestEnd{.request = std::move(request->output),
                                                       .usage = request->meter.At(now),
                                                       .refusal = std::move(refusal),
                                                       .let_in = let_in});
}

void StepLoop::EnterRunning(LiveRequest* request) {
  request->phase = Phase::kRunning;
  request->running_index = running_.size();
  running_.push_back(request);
}

void StepLoop::LeaveRunning(LiveRequest* request) {
  running_[request->running_index] = running_.back();
  running_[request->running_index]->running_index = request->running_index;
  running_.pop_back();
}

OutputRecord& StepLoop::AddRecord(OutputRecord::Kind kind, LiveRequest* request) {
  OutputRecord& record = batch_->records.emplace_back();
  record.kind = kind;
  record.request = request->output.get();
  return record;
}

}  // namespace berth
