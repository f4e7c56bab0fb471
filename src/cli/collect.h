// One request's events gathered into a whole answer, wherever they come from: the engine in this process or a server.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "berth/event.h"
#include "cli/output.h"
#include "cli/runtime.h"

namespace berth::cli {

struct Answer {
  std::optional<Admitted> admitted;
  std::string text;
  std::vector<TokenId> output_ids;
  std::vector<TokenLogprob> logprobs;
  std::optional<Finished> finished;
  std::vector<TokenLogprob> prompt_logprobs;
  Usage usage;
  bool completed = false;
  std::optional<Refusal> failure;  // the request ended early; what came before it is kept

  // Adds one event; returns the text that it brought.
  std::string_view Add(StreamEvent event);
  bool ended() const { return completed || failure.has_value(); }
  // "length", "stop_token", ...; "cancelled" where the caller stopped it, "failed" otherwise.
  std::string FinishName() const;
};

// Runs `request` in the engine. `on_text` gets the text as it comes. A stop request, from `on_text` or any thread,
// cancels the request. A refusal before the start comes back as one; later ones are in Answer::failure.
std::variant<Answer, Refusal> RunInEngine(Engine& engine, TokenizedRequest request,
                                          const std::function<void(std::string_view)>& on_text,
                                          const std::stop_token& stop);

// The parts of the machine-readable answer that generate and client generate share.
Json UsageJson(const Usage& usage);
Json TimingJson(const Usage& usage);
Json StopMatchJson(const Finished& finished);
// `piece` gives the text of a token, or is empty where no vocabulary is at hand.
Json LogprobsJson(const std::vector<TokenLogprob>& logprobs, const std::function<std::string(TokenId)>& piece);

// "5 prompt tokens, 32 output tokens (length) · first token 41 ms · prefill 120.1 tokens/s · decode 33.0 tokens/s · 3
// KV blocks"
std::string FiguresLine(const Answer& answer);

}  // namespace berth::cli
