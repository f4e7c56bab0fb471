#include "cli/collect.h"

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "cli/input.h"

namespace berth::cli {
namespace {

// Hands events from the engine's thread to the one that waits for them.
class EventQueue final : public EventSink {
 public:
  void OnEvent(StreamEvent event) override {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    ready_.notify_one();
  }

  StreamEvent Next() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return !events_.empty(); });
    StreamEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<StreamEvent> events_;  // guarded by mutex_
};

// The ids that a request names must exist before they reach the sampler.
absl::Status CheckVocabulary(const GenerateSpec& spec, std::int32_t vocab_size) {
  std::vector<TokenId> named = spec.stopping.stop_token_ids;
  for (const auto& [id, bias] : spec.sampling.logit_bias) named.push_back(id);
  absl::Status status = CheckTokenIds(named, vocab_size);
  return status.ok() ? CheckTokenIds(spec.prompt_ids, vocab_size) : status;
}

double PerSecond(double count, Duration time) { return time > Duration::zero() ? count / ToSeconds(time) : 0.0; }

double PrefillRate(const Usage& usage) {
  return PerSecond(static_cast<double>(usage.prompt_tokens - usage.cached_tokens), usage.prefill_time);
}

// The first output token comes out of the prefill.
double DecodeRate(const Usage& usage) {
  return usage.output_tokens > 1 ? PerSecond(static_cast<double>(usage.output_tokens - 1), usage.decode_time) : 0.0;
}

}  // namespace

void Answer::Add(StreamEvent event) {
  const auto asked = [this](std::int32_t index) { return index >= 0 && index < std::ssize(choices); };
  if (auto* start = std::get_if<Admitted>(&event)) {
    admitted = std::move(*start);
  } else if (auto* delta = std::get_if<TokenDelta>(&event)) {
    if (!asked(delta->index)) return;
    ChoiceAnswer& choice = choices[static_cast<std::size_t>(delta->index)];
    choice.text += delta->text;
    choice.output_ids.insert(choice.output_ids.end(), delta->token_ids.begin(), delta->token_ids.end());
    for (TokenLogprob& logprob : delta->logprobs) choice.logprobs.push_back(std::move(logprob));
  } else if (auto* end = std::get_if<Finished>(&event)) {
    if (asked(end->index)) choices[static_cast<std::size_t>(end->index)].finished = std::move(*end);
  } else if (auto* done = std::get_if<Completed>(&event)) {
    completed = true;
    usage = done->usage;
    prompt_logprobs = std::move(done->prompt_logprobs);
  } else if (auto* fault = std::get_if<Failed>(&event)) {
    failure = std::move(fault->refusal);
    usage = fault->usage;
  }
}

std::string Answer::FinishName(const ChoiceAnswer& choice) const {
  if (failure) return failure->reason == RefusalReason::kCancelledByClient ? "cancelled" : "failed";
  if (!choice.finished) return "failed";
  switch (choice.finished->reason) {
    case FinishReason::kStopToken:
      return "stop_token";
    case FinishReason::kStopString:
      return "stop_string";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kDeadline:
      return "deadline";
  }
  return "failed";
}

absl::StatusOr<TokenizedRequest> TokenizeRequest(const Tokenizer& tokenizer, GenerateSpec spec) {
  // Ids past the tokenizer's are padding of the embedding: the sampler may see them, nobody can mean them.
  if (absl::Status status = CheckVocabulary(spec, tokenizer.vocab_size()); !status.ok()) return status;
  TokenizedRequest request;
  request.prompt = std::move(spec.prompt_ids);
  if (!spec.prompt_is_ids) {
    absl::StatusOr<std::vector<TokenId>> ids =
        tokenizer.Encode(spec.prompt_text, {.parse_special = spec.parse_special_tokens, .add_bos = true});
    if (!ids.ok()) return ids.status();
    request.prompt = *std::move(ids);
  }
  if (request.prompt.empty()) return absl::InvalidArgumentError("the prompt is empty: give at least one token");
  request.spec = std::move(spec);
  return request;
}

std::variant<Answer, Refusal> RunInEngine(Engine& engine, TokenizedRequest request,
                                          const std::function<void(const TokenDelta&)>& on_delta,
                                          const std::stop_token& stop) {
  std::variant<QueueTicket, Refusal> ticket = engine.TakeTicket({.request_id = request.spec.request_id,
                                                                 .service_class = request.spec.service_class,
                                                                 .tenant = request.spec.tenant,
                                                                 .n = request.spec.sampling.n});
  if (auto* refusal = std::get_if<Refusal>(&ticket)) return std::move(*refusal);
  const TicketNumber ticket_number = std::get<QueueTicket>(ticket).number();
  Answer answer(request.spec.sampling.n);
  const auto events = std::make_shared<EventQueue>();
  engine.Submit(std::get<QueueTicket>(std::move(ticket)), std::move(request), events);
  // Also cancels what was to stop before it was submitted.
  const std::stop_callback cancel(stop, [&] { engine.Cancel(ticket_number); });
  while (!answer.ended()) {
    StreamEvent event = events->Next();
    if (const auto* delta = std::get_if<TokenDelta>(&event)) on_delta(*delta);
    answer.Add(std::move(event));
  }
  const bool cancelled = answer.failure && answer.failure->reason == RefusalReason::kCancelledByClient;
  if (!answer.admitted && answer.failure && !cancelled) return *std::move(answer.failure);
  return answer;
}

Json UsageJson(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"cached_tokens", usage.cached_tokens},
          {"output_tokens", usage.output_tokens},
          {"reserved_blocks", usage.reserved_blocks},
          {"peak_blocks", usage.peak_blocks},
          {"kv_block_seconds", usage.kv_block_seconds},
          {"held_block_seconds", usage.held_block_seconds},
          {"accelerator_seconds", usage.accelerator_seconds},
          {"preemptions", usage.preemptions},
          {"recomputed_tokens", usage.recomputed_tokens}};
}

Json TimingJson(const Usage& usage) {
  return {{"queue_seconds", ToSeconds(usage.queue_time)},
          {"time_to_first_token_seconds", ToSeconds(usage.time_to_first_token)},
          {"prefill_seconds", ToSeconds(usage.prefill_time)},
          {"decode_seconds", ToSeconds(usage.decode_time)},
          {"prefill_tokens_per_second", PrefillRate(usage)},
          {"decode_tokens_per_second", DecodeRate(usage)}};
}

Json StopMatchJson(const ChoiceAnswer& choice) {
  if (!choice.finished) return nullptr;
  if (const auto* text = std::get_if<std::string>(&choice.finished->stop_match)) return *text;
  if (const auto* id = std::get_if<TokenId>(&choice.finished->stop_match)) return *id;
  return nullptr;
}

Json LogprobsJson(const std::vector<TokenLogprob>& logprobs, const std::function<std::string(TokenId)>& piece) {
  const auto entry = [&](TokenId id, float logprob) {
    Json json = {{"id", id}};
    if (piece) json["piece"] = piece(id);
    json["logprob"] = RoundedLogprob(logprob);
    return json;
  };
  Json list = Json::array();
  for (const TokenLogprob& token : logprobs) {
    Json json = entry(token.token_id, token.logprob);
    if (!token.top.empty()) {
      Json top = Json::array();
      for (const TopLogprob& likely : token.top) top.push_back(entry(likely.token_id, likely.logprob));
      json["top"] = std::move(top);
    }
    list.push_back(std::move(json));
  }
  return list;
}

void AddChoices(const Answer& answer, const OutputSpec& wanted, const std::function<std::string(TokenId)>& piece,
                Json* json) {
  const auto add = [&](const ChoiceAnswer& choice, Json* out) {
    (*out)["output_ids"] = choice.output_ids;
    (*out)["text"] = choice.text;
    (*out)["finish_reason"] = answer.FinishName(choice);
    (*out)["stop_match"] = StopMatchJson(choice);
    if (wanted.logprobs != kNoLogprobs) (*out)["logprobs"] = LogprobsJson(choice.logprobs, piece);
  };
  if (answer.choices.size() == 1) return add(answer.only(), json);
  Json choices = Json::array();
  for (const ChoiceAnswer& choice : answer.choices) {
    Json one = {{"index", choices.size()}};
    add(choice, &one);
    choices.push_back(std::move(one));
  }
  (*json)["choices"] = std::move(choices);
}

std::string ShownTexts(const Answer& answer) {
  const bool several = answer.choices.size() > 1;
  std::string shown;
  for (std::size_t q = 0; q < answer.choices.size(); ++q) {
    if (several) shown += "--- " + std::to_string(q + 1) + " ---\n";
    shown += answer.choices[q].text;
    if (!shown.empty() && shown.back() != '\n') shown += '\n';
  }
  return shown;
}

std::string FiguresLine(const Answer& answer) {
  const Usage& usage = answer.usage;
  const bool several = answer.choices.size() > 1 && !answer.failure;
  std::string line =
      GroupDigits(usage.prompt_tokens) + " prompt tokens, " + GroupDigits(usage.output_tokens) + " output tokens (" +
      (several ? std::to_string(answer.choices.size()) + " choices" : answer.FinishName(answer.only())) + ")";
  if (usage.output_tokens > 0) {
    line += " · first token " + Fixed(ToSeconds(usage.time_to_first_token) * 1e3, 0) + " ms";
    line += " · prefill " + Fixed(PrefillRate(usage), 1) + " tokens/s";
  }
  if (usage.output_tokens > 1) line += " · decode " + Fixed(DecodeRate(usage), 1) + " tokens/s";
  return line + " · " + GroupDigits(usage.peak_blocks) + " of " + GroupDigits(usage.reserved_blocks) +
         " reserved KV blocks used";
}

}  // namespace berth::cli
