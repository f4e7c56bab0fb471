#include "engine/request_output.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace berth {
namespace {

TokenLogprob ToTokenLogprob(const OutputRecord& record, std::span<const TopLogprob> top) {
  return {.token_id = record.token, .logprob = record.logprob, .top = {top.begin(), top.end()}};
}

}  // namespace

RequestOutput::RequestOutput(const Tokenizer* tokenizer, std::shared_ptr<const RequestFacts> facts,
                             std::shared_ptr<EventSink> sink)
    : tokenizer_(tokenizer), facts_(std::move(facts)), sink_(std::move(sink)) {}

void RequestOutput::Admit(Admitted admitted) {
  BERTH_CHECK(choices_.empty());
  const OutputStream first(tokenizer_, &facts_->spec, facts_->prompt, &facts_->end_rule);
  choices_.assign(static_cast<std::size_t>(facts_->spec.sampling.n), Choice{.stream = first});
  if (facts_->spec.output.prompt_logprobs != kNoLogprobs) prompt_logprobs_.reserve(facts_->prompt.size() - 1);
  sink_->OnEvent(std::move(admitted));
}

void RequestOutput::AddPromptLogprob(const OutputRecord& record, std::span<const TopLogprob> top) {
  prompt_logprobs_.push_back(ToTokenLogprob(record, top));
}

void RequestOutput::AddToken(const OutputRecord& record, std::span<const TopLogprob> top, const TokenTimes& times,
                             OutputListener* listener, std::vector<TokenCame>* came) {
  Choice& choice = choices_.at(static_cast<std::size_t>(record.choice));
  if (choice.finished) return;
  if (facts_->spec.output.echo_prompt && !std::exchange(choice.echoed, true)) {
    sink_->OnEvent(
        TokenDelta{.index = record.choice, .text = choice.stream.prompt_text(), .token_ids = {}, .logprobs = {}});
  }
  TokenDelta delta{.index = record.choice, .text = {}, .token_ids = {record.token}, .logprobs = {}};
  if (facts_->spec.output.logprobs != kNoLogprobs) delta.logprobs.push_back(ToTokenLogprob(record, top));
  std::optional<Finished> finished = choice.stream.Append(record.token, &delta);
  choice.finished = finished.has_value();
  BERTH_CHECK_MSG(choice.finished || !record.ends_choice, "the engine ended a choice that no rule ends");
  // Before the sink, which may take its time: what computes the choice stops first.
  if (choice.finished && !record.ends_choice) {
    listener->OnStopString({.ticket = facts_->ticket, .choice = record.choice});
  }
  NoteProgress(times.drawn, &choice);
  came->push_back(NoteToken(times.shown, &choice));
  sink_->OnEvent(std::move(delta));
  if (finished.has_value()) sink_->OnEvent(*std::move(finished));
}

TokenCame RequestOutput::NoteToken(TimePoint shown, Choice* choice) {
  TokenCame came{.service_class = facts_->spec.service_class, .tenant = facts_->spec.tenant};
  if (!std::exchange(has_token_, true)) {
    came.kind = TokenCame::Kind::kFirstOfRequest;
    came.after = shown - facts_->spec.arrival;
  } else if (!choice->last_token.has_value()) {
    came.kind = TokenCame::Kind::kFirstOfChoice;
  } else {
    came.after = shown - *choice->last_token;
  }
  choice->last_token = shown;
  return came;
}

// An answer that has ended by a rule is sufficient, however short.
void RequestOutput::NoteProgress(TimePoint drawn, Choice* choice) {
  if (choice->sufficient || (!choice->finished && choice->stream.output_tokens() < facts_->required_tokens)) return;
  choice->sufficient = true;
  if (++sufficient_choices_ == std::ssize(choices_)) sufficient_at_ = drawn;
}

std::optional<bool> RequestOutput::MetDeadline(const RequestEnd& end) const {
  if (facts_->spec.deadline == kNoDeadline) return std::nullopt;
  if (sufficient_at_.has_value()) return *sufficient_at_ <= facts_->spec.deadline;
  if (!end.refusal.has_value()) return false;
  if (!end.let_in) return std::nullopt;
  switch (OutcomeOf(end.refusal->reason, /*started=*/!choices_.empty())) {
    case RequestOutcome::kRejected:   // let in for one plan
    case RequestOutcome::kCancelled:  // nobody waited for it any more
      return std::nullopt;
    default:
      return false;
  }
}

void RequestOutput::End(RequestEnd* end) {
  std::int64_t output_tokens = 0;
  for (const Choice& choice : choices_) output_tokens += choice.stream.output_tokens();
  end->usage.output_tokens = output_tokens;
  const std::optional<bool> met_deadline = MetDeadline(*end);
  if (end->refusal.has_value() && !AllFinished()) {
    sink_->OnEvent(Failed{.refusal = *std::move(end->refusal), .usage = end->usage, .met_deadline = met_deadline});
    return;
  }
  FinishAtDeadline();
  sink_->OnEvent(
      Completed{.usage = end->usage, .prompt_logprobs = std::move(prompt_logprobs_), .met_deadline = met_deadline});
}

bool RequestOutput::AllFinished() const {
  return !choices_.empty() && std::ranges::all_of(choices_, [](const Choice& choice) { return choice.finished; });
}

// Whatever has not ended by a rule ends because time is up.
void RequestOutput::FinishAtDeadline() {
  for (std::size_t q = 0; q < choices_.size(); ++q) {
    if (std::exchange(choices_[q].finished, true)) continue;
    TokenDelta delta;
    delta.index = static_cast<std::int32_t>(q);
    Finished finished = choices_[q].stream.EndAtDeadline(&delta);
    if (!delta.text.empty()) sink_->OnEvent(std::move(delta));
    sink_->OnEvent(std::move(finished));
  }
}

}  // namespace berth
