#include "watched_request.h"

#include <algorithm>
#include <utility>

#include "fakes/memory_backend.h"

namespace berth::simulation {
namespace {

// What MemoryBackend would draw, so many tokens of it.
std::vector<TokenId> Draws(const std::vector<TokenId>& prompt, std::uint64_t seed, std::int32_t choice,
                           std::int64_t tokens) {
  std::vector<TokenId> history = prompt;
  for (std::int64_t i = 0; i < tokens; ++i) history.push_back(test::NextToken(seed, choice, history));
  return {history.begin() + std::ssize(prompt), history.end()};
}

}  // namespace

WatchedRequest::WatchedRequest(const Event& event, std::string id, TimePoint origin, const Tokenizer& tokenizer,
                               std::mt19937_64* random)
    : prompt_(event.request.prompt), choices_(static_cast<std::size_t>(event.request.n)) {
  const test::LoopRequest& asked = event.request;
  for (TokenId& token : prompt_) token %= tokenizer.vocab_size();
  spec_.request_id = std::move(id);
  spec_.service_class = asked.service_class;
  spec_.tenant = asked.tenant;
  if (asked.deadline != kNoDeadline) spec_.deadline = origin + asked.deadline.time_since_epoch();
  spec_.partial_at_deadline = (*random)() % 2 == 0;
  spec_.sampling.n = asked.n;
  spec_.sampling.seed = asked.seed;
  spec_.stopping.max_output_tokens = static_cast<std::int32_t>(asked.max_output_tokens);
  spec_.stopping.include_stop_text = (*random)() % 2 == 0;
  spec_.output.prompt_logprobs = asked.prompt_logprobs;
  spec_.output.logprobs = (*random)() % 4 == 0 ? 0 : kNoLogprobs;
  for (std::int32_t q = 0; q < asked.n; ++q) {
    const std::int64_t stop = event.stops_after[static_cast<std::size_t>(q)];
    if (stop >= asked.max_output_tokens) continue;
    const std::vector<TokenId> draws = Draws(prompt_, asked.seed, q, stop);
    if ((*random)() % 2 == 0) {
      spec_.stopping.stop_token_ids.push_back(draws.back());
    } else {
      // Now and then one that begins in the token before, so that text is held back.
      std::string text(tokenizer.Piece(draws.back()));
      if (draws.size() > 1 && (*random)() % 2 == 0)
        text = std::string(tokenizer.Piece(draws.end()[-2])).substr(1) + text;
      spec_.stopping.stop_strings.push_back(std::move(text));
    }
  }
}

TokenizedRequest WatchedRequest::MakeRequest(TimePoint now) const {
  TokenizedRequest request{.spec = spec_, .prompt = prompt_};
  request.spec.arrival = now;
  return request;
}

void WatchedRequest::CancelAt(std::int64_t tokens, std::function<void()> cancel) {
  cancel_at_ = tokens;
  cancel_ = std::move(cancel);
}

void WatchedRequest::Bad(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

void WatchedRequest::OnEvent(StreamEvent event) {
  if (ended_) return Bad("an event after the last one");
  std::visit([this](auto&& heard) { Hear(std::forward<decltype(heard)>(heard)); }, std::move(event));
  if (cancel_ && tokens_ >= cancel_at_) {
    cancelled_ = true;
    std::exchange(cancel_, nullptr)();
  }
  if (!completed_.has_value() && !failed_.has_value()) return;
  if (on_end_) on_end_(End());
  ended_ = true;
}

RequestEnded WatchedRequest::End() const {
  RequestEnded end;
  end.service_class = spec_.service_class;
  end.tenant = spec_.tenant;
  if (completed_.has_value()) {
    end.reason = last_finish_;
  } else {
    end.reason = failed_->refusal.reason;
  }
  end.started = admitted_;
  end.usage = usage();
  end.choices = spec_.sampling.n;
  end.met_deadline = completed_.has_value() ? completed_->met_deadline : failed_->met_deadline;
  return end;
}

std::vector<std::int64_t> WatchedRequest::tokens_by_choice() const {
  std::vector<std::int64_t> tokens;
  for (const Choice& choice : choices_) tokens.push_back(std::ssize(choice.tokens));
  return tokens;
}

void WatchedRequest::Hear(const Admitted& admitted) {
  if (admitted_) Bad("admitted twice");
  admitted_ = true;
  if (admitted.prompt_tokens != std::ssize(prompt_)) Bad("admitted with another prompt");
  if (admitted.max_output_tokens != spec_.stopping.max_output_tokens) Bad("admitted with another length");
}

void WatchedRequest::Hear(TokenDelta delta) {
  if (!admitted_) Bad("a token before Admitted");
  if (delta.index < 0 || delta.index >= std::ssize(choices_)) return Bad("a token of no choice");
  Choice& choice = choices_[static_cast<std::size_t>(delta.index)];
  if (choice.finished.has_value()) Bad("a token after Finished");
  choice.tokens.insert(choice.tokens.end(), delta.token_ids.begin(), delta.token_ids.end());
  choice.text += delta.text;
  tokens_ += std::ssize(delta.token_ids);
  const bool wants_logprobs = spec_.output.logprobs != kNoLogprobs;
  if (std::ssize(delta.logprobs) != (wants_logprobs ? std::ssize(delta.token_ids) : 0)) Bad("wrong log-probabilities");
}

void WatchedRequest::Hear(const Finished& finished) {
  if (!admitted_) Bad("Finished before Admitted");
  if (finished.index < 0 || finished.index >= std::ssize(choices_)) return Bad("no choice finished");
  Choice& choice = choices_[static_cast<std::size_t>(finished.index)];
  if (choice.finished.has_value()) Bad("a choice finished twice");
  choice.finished = finished;
  last_finish_ = finished.reason;
}

void WatchedRequest::Hear(const Completed& completed) {
  const bool all = std::ranges::all_of(choices_, [](const Choice& choice) { return choice.finished.has_value(); });
  if (!admitted_ || !all) Bad("Completed before every choice had finished");
  if (completed.usage.output_tokens != tokens_) Bad("usage counts other tokens than were sent");
  if (completed.usage.peak_blocks > completed.usage.reserved_blocks) Bad("more blocks held than reserved");
  const bool wants_prompt = spec_.output.prompt_logprobs != kNoLogprobs;
  const std::int64_t wanted = wants_prompt ? std::ssize(prompt_) - 1 : 0;
  if (const std::int64_t got = std::ssize(completed.prompt_logprobs); got != wanted) {
    Bad(std::to_string(got) + " log-probabilities of the prompt instead of " + std::to_string(wanted) + " after " +
        std::to_string(completed.usage.preemptions) + " preemptions");
  }
  for (std::int64_t i = 0; i < std::min(wanted, std::ssize(completed.prompt_logprobs)); ++i) {
    const TokenId told = completed.prompt_logprobs[static_cast<std::size_t>(i)].token_id;
    if (told != prompt_[static_cast<std::size_t>(i + 1)]) Bad("log-probabilities of another prompt");
  }
  completed_ = completed;
}

void WatchedRequest::Hear(const Failed& failed) {
  if (failed.usage.output_tokens != tokens_) Bad("usage counts other tokens than were sent");
  failed_ = failed;
}

WatchedRequest::Expected WatchedRequest::ExpectedOf(std::int32_t choice, const Tokenizer& tokenizer) const {
  const StoppingSpec& stopping = spec_.stopping;
  Expected expected;
  for (const TokenId token : Draws(prompt_, spec_.sampling.seed, choice, stopping.max_output_tokens)) {
    expected.tokens.push_back(token);
    const bool stops = std::ranges::count(stopping.stop_token_ids, token) > 0;
    expected.stopped_text = expected.text;
    expected.text += tokenizer.Piece(token);
    if (stops) {
      expected.reason = FinishReason::kStopToken;
      if (stopping.include_stop_text) expected.stopped_text = expected.text;
      return expected;
    }
    // Of several the one that ends first, the longest of those.
    std::size_t begin = std::string::npos;
    std::size_t end = std::string::npos;
    for (const std::string& stop : stopping.stop_strings) {
      const std::size_t at = expected.text.find(stop);
      if (at == std::string::npos || std::pair(at + stop.size(), at) >= std::pair(end, begin)) continue;
      begin = at;
      end = at + stop.size();
    }
    if (end != std::string::npos) {
      expected.reason = FinishReason::kStopString;
      expected.stopped_text = expected.text.substr(0, stopping.include_stop_text ? end : begin);
      return expected;
    }
    expected.stopped_text = expected.text;
  }
  return expected;
}

std::string WatchedRequest::ChoiceViolation(std::int32_t choice, const Tokenizer& tokenizer) const {
  const Choice& heard = choices_[static_cast<std::size_t>(choice)];
  const Expected expected = ExpectedOf(choice, tokenizer);
  const std::string name = "choice " + std::to_string(choice) + " ";
  const bool is_prefix = heard.tokens.size() <= expected.tokens.size() &&
                         std::equal(heard.tokens.begin(), heard.tokens.end(), expected.tokens.begin());
  if (!is_prefix) return name + "put out other tokens than alone";
  if (!heard.finished.has_value() || heard.finished->reason == FinishReason::kDeadline) {
    const bool may_end_so = spec_.deadline != kNoDeadline && spec_.partial_at_deadline;
    if (heard.finished.has_value() && !may_end_so) return name + "ended at a deadline that no part of an answer meets";
    return expected.text.starts_with(heard.text) ? "" : name + "put out another text than alone";
  }
  if (heard.tokens.size() != expected.tokens.size()) return name + "finished early";
  if (heard.finished->reason != expected.reason) return name + "finished for another reason than alone";
  return heard.text == expected.stopped_text ? "" : name + "put out another text than alone";
}

std::string WatchedRequest::FailureViolation(const Circumstances& circumstances) const {
  const RefusalReason reason = failed_->refusal.reason;
  const std::string name = RefusalReasonName(reason);
  if (failed_->refusal.message.empty()) return name + " without a message";
  switch (reason) {
    case RefusalReason::kCancelledByClient:
      return cancelled_ ? "" : "CANCELLED_BY_CLIENT without a cancel";
    case RefusalReason::kBackendFault:
      return circumstances.faults ? "" : "BACKEND_FAULT without a fault";
    case RefusalReason::kDraining:
    case RefusalReason::kDrainTimeout:
      return circumstances.draining ? "" : name + " without a drain";
    case RefusalReason::kDeadlineExceeded:
    case RefusalReason::kDeadlineInfeasible:
      return spec_.deadline != kNoDeadline ? "" : name + " without a deadline";
    case RefusalReason::kInvalidRequest:
    case RefusalReason::kUnknownClass:
    case RefusalReason::kClassNotAllowed:
    case RefusalReason::kClassOnHold:
      return circumstances.policy_changes ? "" : name + " after a ticket was given";
    case RefusalReason::kUnimplemented:
    case RefusalReason::kModelNotFound:
    case RefusalReason::kDuplicateRequestId:
      return name + " after a ticket was given";
    default:
      return "";
  }
}

std::string WatchedRequest::Violation(const Circumstances& circumstances, const Tokenizer& tokenizer) const {
  std::string violation = violation_;
  for (std::int32_t q = 0; violation.empty() && q < std::ssize(choices_); ++q)
    violation = ChoiceViolation(q, tokenizer);
  if (violation.empty() && failed_.has_value()) violation = FailureViolation(circumstances);
  return violation.empty() ? "" : "request " + spec_.request_id + ": " + violation;
}

}  // namespace berth::simulation
