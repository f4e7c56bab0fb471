// What the other threads ask of the engine's.
#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "engine/step_loop.h"

namespace berth {

// Also while a step is in flight: a refusal never waits for one.
void StepLoop::OpenMail(TimePoint now) {
  for (auto& request : mail_.submitted) Receive(std::move(request), now);
  for (const auto& [ticket, reason] : mail_.cancelled) {
    const auto found = by_ticket_.find(ticket);
    if (found != by_ticket_.end()) admission_.Cancel(found->second->key, reason);
  }
  for (const Question& question : mail_.questions) {
    AdmissionRequest asked = Ask(question.spec, question.demand);
    asked.key = next_key_;
    question.answer(admission_.Foresee(asked, now));
  }
  stops_.insert(stops_.end(), mail_.stopped.begin(), mail_.stopped.end());
  if (mail_.policy.has_value()) next_policy_ = std::move(mail_.policy);
  drain_until_ = mail_.drain_until;
}

void StepLoop::Receive(std::unique_ptr<LiveRequest> request, TimePoint now) {
  request->key = next_key_++;
  AdmissionRequest asked = Ask(request->facts->spec, request->facts->demand);
  asked.key = request->key;
  if (std::optional<Refusal> refusal = admission_.Submit(asked, now)) {
    changes_.push_back({request->facts->ticket, Entrance::Change::Kind::kEndedWaiting});
    return SendEnd(request.get(), std::move(refusal), /*let_in=*/false, now);
  }
  request->scheduled.key = request->key;
  scheduler_->Add(std::move(request->scheduled));
  const ClassId c = request->service_class();
  if (admission_.waiting(c) + admission_.running(c) == 1) shared_.heartbeat->NoteProgress(Index(c), now);
  by_ticket_.emplace(request->facts->ticket, request.get());
  live_.emplace(request->key, std::move(request));
}

AdmissionRequest StepLoop::Ask(const GenerateSpec& spec, const KvDemand& demand) const {
  AdmissionRequest asked;
  asked.service_class = spec.service_class;
  asked.tenant = spec.tenant;
  asked.prompt_tokens = demand.prompt_tokens;
  asked.max_output_tokens = demand.max_output_tokens;
  asked.n = spec.sampling.n;
  asked.arrival = spec.arrival;
  asked.deadline = spec.deadline;
  asked.overload = admission_.policy().classes[Index(spec.service_class)].overload;
  if (spec.deadline != kNoDeadline) {
    const std::int64_t required = scheduler_->RequiredTokens(spec.service_class, demand.max_output_tokens);
    asked.needed_time = scheduler_->PredictTime(demand.prompt_tokens, required, /*alone=*/false);
  }
  asked.service_time = scheduler_->PredictTime(demand.prompt_tokens, demand.max_output_tokens, /*alone=*/false);
  return asked;
}

// The core first: a ticket of a new class must not come in before the core knows that class.
void StepLoop::AdoptPolicy(const Policy& policy, TimePoint now) {
  scheduler_->SetPolicy(policy);
  admission_.SetPolicy(policy);
  shared_.entrance->SetPolicy(policy);
  shared_.limits->SetPolicy(policy);
  shared_.heartbeat->NoteProgressOfAll(policy.classes.size(), now);
}

// Choices that a stop string has ended. One that is parked is ended once it runs again; a request that has no other
// choice left need not.
void StepLoop::ApplyStops(TimePoint now) {
  std::erase_if(stops_, [&](const ChoiceName& stop) {
    const auto found = by_ticket_.find(stop.ticket);
    if (found == by_ticket_.end()) return true;
    LiveRequest* request = found->second;
    if (request->choices[Index(stop.choice)].ended) return true;
    if (request->phase != LiveRequest::Phase::kRunning) return false;
    EndChoice(request, stop.choice, now);
    return true;
  });
  for (const ChoiceName& stop : stops_) {
    const LiveRequest& parked = *by_ticket_.at(stop.ticket);
    if (AllChoicesStopped(parked)) admission_.Cancel(parked.key);
  }
}

bool StepLoop::AllChoicesStopped(const LiveRequest& request) const {
  return std::ranges::count(stops_, request.facts->ticket, &ChoiceName::ticket) == request.live_choices;
}

}  // namespace berth
