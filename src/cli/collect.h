// One request's events gathered into a whole answer, wherever they come from: the engine in this process or a server.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "berth/event.h"
#include "berth/request.h"
#include "cli/output.h"
#include "engine/engine.h"
#include "tokenizer/tokenizer.h"

namespace berth::cli {

struct ChoiceAnswer {
  std::string text;
  std::vector<TokenId> output_ids;
  std::vector<TokenLogprob> logprobs;
  std::optional<Finished> finished;
};

struct Answer {
  explicit Answer(std::int32_t n = 1) : choices(static_cast<std::size_t>(n)) {}

  std::optional<Admitted> admitted;
  std::vector<ChoiceAnswer> choices;
  std::vector<TokenLogprob> prompt_logprobs;
  Usage usage;
  bool completed = false;
  std::optional<Refusal> failure;  // the request ended early; what came before it is kept

  // What a request for one choice is about.
  const ChoiceAnswer& only() const { return choices.front(); }
  // Adds one event; events of choices that were not asked for are ignored.
  void Add(StreamEvent event);
  bool ended() const { return completed || failure.has_value(); }
  // "length", "stop_token", ...; "cancelled" where the caller stopped it, "failed" otherwise.
  std::string FinishName(const ChoiceAnswer& choice) const;
};

// The token ids that a request names, and its prompt's, lie in the tokenizer's vocabulary, or an error; then its prompt
// as token ids.
absl::StatusOr<TokenizedRequest> TokenizeRequest(const Tokenizer& tokenizer, GenerateSpec spec);

// Runs `request` in the engine. `on_delta` sees what comes as it comes. A stop request, from `on_delta` or any thread,
// cancels the request. A refusal before the start comes back as one; later ones are in Answer::failure.
std::variant<Answer, Refusal> RunInEngine(Engine& engine, TokenizedRequest request,
                                          const std::function<void(const TokenDelta&)>& on_delta,
                                          const std::stop_token& stop);

// The parts of the machine-readable answer that generate and client generate share.
Json UsageJson(const Usage& usage);
Json TimingJson(const Usage& usage);
Json StopMatchJson(const ChoiceAnswer& choice);
// `piece` gives the text of a token, or is empty where no vocabulary is at hand.
Json LogprobsJson(const std::vector<TokenLogprob>& logprobs, const std::function<std::string(TokenId)>& piece);

// What each choice of a request came to. Of a request for one choice, the members of `json`: output_ids, text,
// finish_reason, stop_match, and logprobs where asked for; of one for several, its "choices", each with its index.
void AddChoices(const Answer& answer, const OutputSpec& wanted, const std::function<std::string(TokenId)>& piece,
                Json* json);
// The texts for a reader: one ends with its line; each of several has a line with its number before it.
std::string ShownTexts(const Answer& answer);

// "5 prompt tokens, 32 output tokens (length) · first token 41 ms · prefill 120.1 tokens/s · decode 33.0 tokens/s · 3
// KV blocks"
std::string FiguresLine(const Answer& answer);

}  // namespace berth::cli
