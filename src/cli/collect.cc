#include "cli/collect.h"

#include <memory>
#include <type_traits>
#include <utility>

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

double PerSecond(double count, Duration time) { return time > Duration::zero() ? count / ToSeconds(time) : 0.0; }

double PrefillRate(const Usage& usage) {
  return PerSecond(static_cast<double>(usage.prompt_tokens - usage.cached_tokens), usage.prefill_time);
}

// The first output token comes out of the prefill.
double DecodeRate(const Usage& usage) {
  return usage.output_tokens > 1 ? PerSecond(static_cast<double>(usage.output_tokens - 1), usage.decode_time) : 0.0;
}

}  // namespace

std::string_view Answer::Add(StreamEvent event) {
  if (auto* start = std::get_if<Admitted>(&event)) {
    admitted = std::move(*start);
  } else if (auto* delta = std::get_if<TokenDelta>(&event)) {
    const std::size_t before = text.size();
    text += delta->text;
    output_ids.insert(output_ids.end(), delta->token_ids.begin(), delta->token_ids.end());
    for (TokenLogprob& logprob : delta->logprobs) logprobs.push_back(std::move(logprob));
    return std::string_view(text).substr(before);
  } else if (auto* end = std::get_if<Finished>(&event)) {
    finished = std::move(*end);
  } else if (auto* done = std::get_if<Completed>(&event)) {
    completed = true;
    usage = done->usage;
    prompt_logprobs = std::move(done->prompt_logprobs);
  } else if (auto* fault = std::get_if<Failed>(&event)) {
    failure = std::move(fault->refusal);
    usage = fault->usage;
  }
  return {};
}

std::string Answer::FinishName() const {
  if (failure) return failure->reason == RefusalReason::kCancelledByClient ? "cancelled" : "failed";
  if (!finished) return "failed";
  switch (finished->reason) {
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

std::variant<Answer, Refusal> RunInEngine(Engine& engine, TokenizedRequest request,
                                          const std::function<void(std::string_view)>& on_text,
                                          const std::stop_token& stop) {
  std::variant<QueueTicket, Refusal> ticket = engine.TakeTicket({.request_id = request.spec.request_id,
                                                                 .service_class = request.spec.service_class,
                                                                 .tenant = request.spec.tenant,
                                                                 .n = request.spec.sampling.n});
  if (auto* refusal = std::get_if<Refusal>(&ticket)) return std::move(*refusal);
  const TicketNumber ticket_number = std::get<QueueTicket>(ticket).number();
  const auto events = std::make_shared<EventQueue>();
  engine.Submit(std::get<QueueTicket>(std::move(ticket)), std::move(request), events);
  // Also cancels what was to stop before it was submitted.
  const std::stop_callback cancel(stop, [&] { engine.Cancel(ticket_number); });
  Answer answer;
  while (!answer.ended()) {
    const std::string_view text = answer.Add(events->Next());
    if (!text.empty()) on_text(text);
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
          {"accelerator_seconds", usage.accelerator_seconds}};
}

Json TimingJson(const Usage& usage) {
  return {{"queue_seconds", ToSeconds(usage.queue_time)},
          {"time_to_first_token_seconds", ToSeconds(usage.time_to_first_token)},
          {"prefill_seconds", ToSeconds(usage.prefill_time)},
          {"decode_seconds", ToSeconds(usage.decode_time)},
          {"prefill_tokens_per_second", PrefillRate(usage)},
          {"decode_tokens_per_second", DecodeRate(usage)}};
}

Json StopMatchJson(const Finished& finished) {
  if (const auto* text = std::get_if<std::string>(&finished.stop_match)) return *text;
  if (const auto* id = std::get_if<TokenId>(&finished.stop_match)) return *id;
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

std::string FiguresLine(const Answer& answer) {
  const Usage& usage = answer.usage;
  std::string line = GroupDigits(usage.prompt_tokens) + " prompt tokens, " + GroupDigits(usage.output_tokens) +
                     " output tokens (" + answer.FinishName() + ")";
  if (usage.output_tokens > 0) {
    line += " · first token " + Fixed(ToSeconds(usage.time_to_first_token) * 1e3, 0) + " ms";
    line += " · prefill " + Fixed(PrefillRate(usage), 1) + " tokens/s";
  }
  if (usage.output_tokens > 1) line += " · decode " + Fixed(DecodeRate(usage), 1) + " tokens/s";
  return line + " · " + GroupDigits(usage.peak_blocks) + " of " + GroupDigits(usage.reserved_blocks) +
         " reserved KV blocks used";
}

}  // namespace berth::cli
