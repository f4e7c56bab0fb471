#include "frontend/call.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace berth {
namespace {

// Merged messages stay far below the 4 MiB that clients take by default, also with 20 alternatives for each token.
constexpr std::size_t kMaxMergedTokens = 1024;

}  // namespace

Call::Call(const Clock* clock, const EventEncoder& encoder, CallNames names, CallTransport* transport)
    : clock_(clock), encoder_(encoder), names_(std::move(names)), transport_(transport) {}

void Call::OnDone() {
  const std::lock_guard lock(mutex_);
  done_ = true;
}

std::function<void()> Call::AborterIfStuck(TimePoint now, Duration timeout) {
  const std::lock_guard lock(mutex_);
  if (done_ || aborted_ || !oldest_unwritten_ || now - *oldest_unwritten_ < timeout) return nullptr;
  aborted_ = true;
  return transport_->SlowReaderAborter();
}

CallEnding Call::EndingOf(const Failed& failed) const {
  CallEnding ending = RefusedEnding(failed.refusal, names_);
  if (admitted_) AttachUsage(failed.usage, &ending);
  return ending;
}

CallEnding Call::EndingOf(const Completed& completed) {
  CallEnding ending;
  AttachUsage(completed.usage, &ending);
  return ending;
}

UnaryCall::UnaryCall(const Clock* clock, const EventEncoder& encoder, CallNames names, CallTransport* transport)
    : Call(clock, encoder, std::move(names), transport) {}

void UnaryCall::OnEvent(StreamEvent event) {
  if (std::holds_alternative<Admitted>(event)) {
    const std::lock_guard lock(mutex_);
    admitted_ = true;
  } else if (const auto* delta = std::get_if<TokenDelta>(&event)) {
    encoder_.Append(*delta, ChoiceAt(delta->index));
  } else if (const auto* finished = std::get_if<Finished>(&event)) {
    encoder_.Encode(*finished, ChoiceAt(finished->index));
  } else if (const auto* completed = std::get_if<Completed>(&event)) {
    encoder_.Encode(*completed, &response_);
    Finish(EndingOf(*completed));
  } else if (const auto* failed = std::get_if<Failed>(&event)) {
    Finish(EndingOf(*failed));
  }
}

v1::Choice* UnaryCall::ChoiceAt(std::int32_t index) {
  while (response_.choices_size() <= index) response_.add_choices()->set_index(response_.choices_size() - 1);
  return response_.mutable_choices(index);
}

void UnaryCall::Finish(const CallEnding& ending) {
  {
    const std::lock_guard lock(mutex_);
    BERTH_CHECK(!finish_called_);
    finish_called_ = true;
    oldest_unwritten_ = clock_->Now();
  }
  response_.set_request_id(names_.request_id);
  transport_->Finish(ending.status.ok() ? &response_ : nullptr, ending);
}

StreamCall::StreamCall(const Clock* clock, const EventEncoder& encoder, CallNames names, CallTransport* transport)
    : Call(clock, encoder, std::move(names), transport) {}

void StreamCall::OnEvent(StreamEvent event) {
  {
    const std::lock_guard lock(mutex_);
    BERTH_CHECK_MSG(!ending_, "an event after the last one");
    Enqueue(std::move(event));
  }
  Pump();
}

void StreamCall::Enqueue(StreamEvent&& event) {
  if (const auto* failed = std::get_if<Failed>(&event)) {
    ending_ = EndingOf(*failed);
  } else if (const auto* completed = std::get_if<Completed>(&event)) {
    ending_ = EndingOf(*completed);
    if (!broken_) encoder_.Encode(*completed, NewPending().message.mutable_completed());
  } else if (const auto* admitted = std::get_if<Admitted>(&event)) {
    admitted_ = true;
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
  const CallEnding* finish_with = nullptr;  // stays as it is: nothing follows the last event
  {
    const std::lock_guard lock(mutex_);
    if (writing_ || finish_called_) return;
    if (broken_) pending_.clear();
    if (pending_.empty() && !ending_) {
      oldest_unwritten_.reset();
      return;
    }
    if (!pending_.empty()) {
      current_ = std::move(pending_.front());
      pending_.pop_front();
      message = &current_.message;
    }
    // The last message travels with the status.
    if (ending_ && pending_.empty()) {
      finish_called_ = true;
      finish_with = &*ending_;
      oldest_unwritten_ = message != nullptr ? current_.since : clock_->Now();
    } else {
      writing_ = true;
      oldest_unwritten_ = current_.since;
    }
  }
  if (finish_with != nullptr) {
    transport_->Finish(message, *finish_with);
  } else {
    transport_->Write(*message);
  }
}

}  // namespace berth
