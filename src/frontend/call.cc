#include "frontend/call.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace berth {
namespace {

// Merged messages stay far below the 4 MiB that clients take by default, also with 20 alternatives for each token.
constexpr std::size_t kMaxMergedTokens = 1024;

}  // namespace

Refusal SlowReaderRefusal() {
  Refusal refusal;
  refusal.reason = RefusalReason::kSlowReader;
  refusal.message =
      "the client left the oldest message of the stream unread for too long: read faster, or ask for less";
  return refusal;
}

Call::Call(const Clock* clock, MetricSink* metrics, const EventEncoder& encoder, CallFacts facts,
           CallTransport* transport)
    : clock_(clock), encoder_(encoder), facts_(std::move(facts)), transport_(transport), metrics_(metrics) {}

void Call::OnDone() {
  const std::lock_guard lock(mutex_);
  done_ = true;
}

std::function<void()> Call::AborterIfStuck(TimePoint now, Duration timeout) {
  const std::lock_guard lock(mutex_);
  if (done_ || aborted_ || !oldest_unwritten_ || now - *oldest_unwritten_ < timeout) return nullptr;
  aborted_ = true;
  ended_aborted_ = !finish_called_;
  return transport_->SlowReaderAborter();
}

RefusalReason Call::cancel_reason() {
  const std::lock_guard lock(mutex_);
  return aborted_ ? RefusalReason::kSlowReader : RefusalReason::kCancelledByClient;
}

void Call::NoteLocked(const StreamEvent& event) {
  if (std::holds_alternative<Admitted>(event)) {
    admitted_ = true;
  } else if (const auto* finished = std::get_if<Finished>(&event)) {
    last_finish_ = finished->reason;
  } else if (const auto* completed = std::get_if<Completed>(&event)) {
    end_ = End{last_finish_, completed->usage, completed->met_deadline};
  } else if (const auto* failed = std::get_if<Failed>(&event)) {
    end_ = End{failed->refusal, failed->usage, failed->met_deadline};
  }
}

CallEnding Call::EndingLocked() const {
  CallEnding ending;
  if (ended_aborted_) {
    ending = RefusedEnding(SlowReaderRefusal(), facts_.names);
  } else if (const auto* refusal = std::get_if<Refusal>(&end_->reason)) {
    ending = RefusedEnding(*refusal, facts_.names);
  }
  if (admitted_) AttachUsage(end_->usage, &ending);
  return ending;
}

void Call::TellEnd() {
  RequestEnded told;
  told.request_id = facts_.names.request_id;
  told.trace_id = facts_.names.trace_id;
  told.service_class = facts_.service_class;
  told.tenant = facts_.tenant;
  told.choices = facts_.choices;
  told.total_time = clock_->Now() - facts_.arrival;
  {
    const std::lock_guard lock(mutex_);
    if (ended_aborted_) {
      told.reason = RefusalReason::kSlowReader;
    } else if (const auto* refusal = std::get_if<Refusal>(&end_->reason)) {
      told.reason = refusal->reason;
    } else {
      told.reason = std::get<FinishReason>(end_->reason);
    }
    told.started = admitted_;
    told.usage = end_->usage;
    told.met_deadline = end_->met_deadline;
  }
  metrics_->OnEnd(told);
}

UnaryCall::UnaryCall(const Clock* clock, MetricSink* metrics, const EventEncoder& encoder, CallFacts facts,
                     CallTransport* transport)
    : Call(clock, metrics, encoder, std::move(facts), transport) {}

void UnaryCall::OnEvent(StreamEvent event) {
  {
    const std::lock_guard lock(mutex_);
    NoteLocked(event);
  }
  if (const auto* delta = std::get_if<TokenDelta>(&event)) {
    encoder_.Append(*delta, ChoiceAt(delta->index));
  } else if (const auto* finished = std::get_if<Finished>(&event)) {
    encoder_.Encode(*finished, ChoiceAt(finished->index));
  } else if (const auto* completed = std::get_if<Completed>(&event)) {
    encoder_.Encode(*completed, &response_);
    Finish();
  } else if (std::holds_alternative<Failed>(event)) {
    Finish();
  }
}

v1::Choice* UnaryCall::ChoiceAt(std::int32_t index) {
  while (response_.choices_size() <= index) response_.add_choices()->set_index(response_.choices_size() - 1);
  return response_.mutable_choices(index);
}

void UnaryCall::Finish() {
  CallEnding ending;
  {
    const std::lock_guard lock(mutex_);
    BERTH_CHECK(!finish_called_);
    finish_called_ = true;
    oldest_unwritten_ = clock_->Now();
    ending = EndingLocked();
  }
  response_.set_request_id(facts_.names.request_id);
  TellEnd();
  transport_->Finish(ending.status.ok() ? &response_ : nullptr, ending);
}

StreamCall::StreamCall(const Clock* clock, MetricSink* metrics, const EventEncoder& encoder, CallFacts facts,
                       CallTransport* transport)
    : Call(clock, metrics, encoder, std::move(facts), transport) {}

void StreamCall::OnEvent(StreamEvent event) {
  {
    const std::lock_guard lock(mutex_);
    BERTH_CHECK_MSG(!ended_, "an event after the last one");
    NoteLocked(event);
    Enqueue(std::move(event));
  }
  Pump();
}

void StreamCall::Enqueue(StreamEvent&& event) {
  if (std::holds_alternative<Failed>(event)) {
    ended_ = true;
  } else if (const auto* completed = std::get_if<Completed>(&event)) {
    ended_ = true;
    if (!broken_) encoder_.Encode(*completed, NewPending().message.mutable_completed());
  } else if (const auto* admitted = std::get_if<Admitted>(&event)) {
    if (!broken_) encoder_.Encode(*admitted, NewPending().message.mutable_admitted());
  } else if (const auto* finished = std::get_if<Finished>(&event)) {
    if (!broken_) encoder_.Encode(*finished, NewPending().message.mutable_finished());
  } else if (const auto* delta = std::get_if<TokenDelta>(&event)) {
    if (!broken_ && encoder_.Shows(*delta)) EnqueueDelta(*delta);
  }
}

void StreamCall::EnqueueDelta(const TokenDelta& delta) {
  const std::size_t tokens = std::max<std::size_t>({1, delta.token_ids.size(), delta.logprobs.size()});
  const bool merge =
      !pending_.empty() && pending_.back().message.has_tokens() && pending_.back().tokens + tokens <= kMaxMergedTokens;
  Pending& pending = merge ? pending_.back() : NewPending();
  pending.tokens += tokens;
  auto* deltas = pending.message.mutable_tokens()->mutable_deltas();
  v1::TokenDelta* out = nullptr;
  for (v1::TokenDelta& there : *deltas) {
    if (there.index() == delta.index) out = &there;
  }
  encoder_.Append(delta, out != nullptr ? out : deltas->Add());
}

StreamCall::Pending& StreamCall::NewPending() {
  pending_.emplace_back();
  pending_.back().since = clock_->Now();
  return pending_.back();
}

void StreamCall::OnWriteDone(bool ok) {
  {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) broken_ = true;
  }
  Pump();
}

void StreamCall::OnCancel() {
  const std::lock_guard lock(mutex_);
  broken_ = true;
}

void StreamCall::Pump() {
  const google::protobuf::Message* message = nullptr;
  std::optional<CallEnding> finish_with;
  {
    const std::lock_guard lock(mutex_);
    if (writing_ || finish_called_) return;
    if (broken_) pending_.clear();
    if (pending_.empty() && !ended_) {
      oldest_unwritten_.reset();
      return;
    }
    if (!pending_.empty()) {
      current_ = std::move(pending_.front());
      pending_.pop_front();
      message = &current_.message;
    }
    // The last message travels with the status.
    if (ended_ && pending_.empty()) {
      finish_called_ = true;
      finish_with = EndingLocked();
      oldest_unwritten_ = message != nullptr ? current_.since : clock_->Now();
    } else {
      writing_ = true;
      oldest_unwritten_ = current_.since;
    }
  }
  if (finish_with.has_value()) {
    TellEnd();
    transport_->Finish(message, *finish_with);
  } else {
    transport_->Write(*message);
  }
}

}  // namespace berth
