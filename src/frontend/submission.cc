#include "frontend/submission.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "frontend/refusal_status.h"

namespace berth {

Refusal EncodeFault(const absl::Status& status) {
  Refusal refusal;
  refusal.reason = RefusalReason::kInvalidRequest;
  refusal.message = "text cannot be tokenized: " + std::string(status.message());
  refusal.field = "text";
  return refusal;
}

std::shared_ptr<Submission> Submission::Start(const FrontendParts& parts, GenerateSpec spec, bool is_retry,
                                              std::shared_ptr<EventSink> sink) {
  std::shared_ptr<Submission> submission(new Submission(parts, std::move(spec), std::move(sink)));
  submission->TakeTicket(is_retry);
  return submission;
}

Submission::Submission(const FrontendParts& parts, GenerateSpec spec, std::shared_ptr<EventSink> sink)
    : parts_(parts), sink_(std::move(sink)), spec_(std::move(spec)) {}

void Submission::TakeTicket(bool is_retry) {
  std::variant<QueueTicket, Refusal> ticket = parts_.engine->TakeTicket({.request_id = spec_.request_id,
                                                                         .service_class = spec_.service_class,
                                                                         .tenant = spec_.tenant,
                                                                         .n = spec_.sampling.n,
                                                                         .least_prompt_tokens = LeastPromptTokens(),
                                                                         .replaces_live = is_retry});
  const auto* refused = std::get_if<Refusal>(&ticket);
  // In bytes, which the caller can count, where that is what is wrong.
  if (refused == nullptr || refused->reason == RefusalReason::kRequestTooLarge) {
    if (std::optional<Refusal> in_bytes = parts_.codec->CheckPromptBytes(spec_)) return Refuse(*std::move(in_bytes));
  }
  if (refused != nullptr) return Refuse(*refused);
  {
    const std::lock_guard lock(mutex_);
    ticket_.emplace(std::move(std::get<QueueTicket>(ticket)));
    ticket_number_ = ticket_->number();
  }
  if (spec_.prompt_is_ids) return Submit(std::move(spec_.prompt_ids));
  if (!parts_.pool->PostTicketed([self = shared_from_this()] { self->Tokenize(); })) {
    Refuse(DrainingRefusal());
  }
}

// Before it is tokenized: no token spells more bytes than the longest one.
std::int64_t Submission::LeastPromptTokens() const {
  if (spec_.prompt_is_ids) return std::ssize(spec_.prompt_ids);
  return std::max<std::int64_t>(1, CeilDiv(std::ssize(spec_.prompt_text), parts_.tokenizer->longest_piece_bytes()));
}

void Submission::Tokenize() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kEnded) return;
  }
  EncodeOptions options;
  options.parse_special = spec_.parse_special_tokens;
  absl::StatusOr<std::vector<TokenId>> ids = parts_.tokenizer->Encode(spec_.prompt_text, options);
  if (!ids.ok()) return Refuse(EncodeFault(ids.status()));
  Submit(*std::move(ids));
}

void Submission::Submit(std::vector<TokenId> prompt) {
  std::optional<QueueTicket> ticket;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kEnded) return;
    state_ = State::kSubmitted;
    ticket.emplace(*std::move(ticket_));
    ticket_.reset();
  }
  spec_.prompt_text = {};  // the ids say it all
  parts_.engine->Submit(*std::move(ticket), {std::move(spec_), std::move(prompt)}, sink_);
}

void Submission::Cancel(RefusalReason reason) {
  std::optional<QueueTicket> ticket;  // given back outside the lock
  State before;
  {
    const std::lock_guard lock(mutex_);
    before = state_;
    if (cancelled_ || before == State::kEnded) return;
    cancelled_ = true;
    if (before == State::kTokenizing) {
      state_ = State::kEnded;
      if (ticket_) ticket.emplace(*std::move(ticket_));
      ticket_.reset();
    }
  }
  // The ticket names the request in the engine, also while Submit is under way.
  if (before == State::kSubmitted) return parts_.engine->Cancel(ticket_number_, reason);
  ticket.reset();
  Refusal refusal;
  refusal.reason = reason;
  refusal.message = "the client cancelled the call before its prompt was tokenized";
  sink_->OnEvent(Failed{std::move(refusal), {}});
}

void Submission::Refuse(Refusal refusal) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kEnded) return;
    state_ = State::kEnded;
    ticket_.reset();
  }
  sink_->OnEvent(Failed{std::move(refusal), {}});
}

}  // namespace berth
