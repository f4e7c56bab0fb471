// A generation request after validation: every default resolved, every bound checked. Made by the codec (or the command
// line), read by everything after it, changed by nobody.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "berth/clock.h"
#include "berth/units.h"

namespace berth {

// How the next token is drawn. The order of operations is fixed: logit bias, repetition penalty (over prompt and
// output), presence and frequency penalties (over output), min-token bans, temperature, top-k, top-p, min-p, draw.
struct SamplingSpec {
  float temperature = 1.0F;                           // 0 = greedy: the highest logit, lowest id on ties
  std::int32_t top_k = 0;                             // 0 = off
  float top_p = 1.0F;                                 // (0, 1], 1 = off
  float min_p = 0.0F;                                 // [0, 1], 0 = off; relative to the most likely token
  std::uint64_t seed = 0;                             // always set: drawn by the codec when the caller left it out
  std::int32_t n = 1;                                 // choices
  float repetition_penalty = 1.0F;                    // > 0, 1 = off (CTRL, arXiv:1909.05858, section 4.1)
  float presence_penalty = 0.0F;                      // [-2, 2]
  float frequency_penalty = 0.0F;                     // [-2, 2]
  std::vector<std::pair<TokenId, float>> logit_bias;  // added to the raw logit; ids inside the vocabulary, no id twice
};

struct StoppingSpec {
  std::int32_t max_output_tokens = 0;  // ≥ 1
  // The caller left it out: it is a default, to be cut to what the context leaves instead of being refused.
  bool max_output_tokens_is_default = false;
  std::int32_t min_output_tokens = 0;     // no stop token and no end of text before so many tokens
  std::vector<std::string> stop_strings;  // non-empty UTF-8
  std::vector<TokenId> stop_token_ids;
  bool include_stop_text = false;
  bool ignore_eos = false;
};

inline constexpr std::int32_t kNoLogprobs = -1;

struct OutputSpec {
  // kNoLogprobs = none; 0 = the chosen token's alone; k = and the k most likely ones. Log-softmax of the raw logits:
  // before bias, penalties and temperature.
  std::int32_t logprobs = kNoLogprobs;
  std::int32_t prompt_logprobs = kNoLogprobs;
  bool return_token_ids = false;
  bool echo_prompt = false;
};

struct GenerateSpec {
  std::string request_id;
  ClassId service_class = 0;
  TenantId tenant = 0;
  // The prompt is `prompt_text`, unless `prompt_ids` is used (prompt_is_ids).
  std::string prompt_text;
  std::vector<TokenId> prompt_ids;
  bool prompt_is_ids = false;
  // Special tokens spelled out in prompt_text become those tokens; otherwise they are plain text.
  bool parse_special_tokens = false;
  TimePoint arrival{};
  TimePoint deadline = kNoDeadline;
  // What there is when the deadline passes after the first token is an answer (the request's own timeout) instead of
  // too late (the call's deadline, at which the caller has hung up).
  bool partial_at_deadline = true;
  std::string trace_id;  // 32 hexadecimal digits of the caller's W3C traceparent, for the log; empty = none
  SamplingSpec sampling;
  StoppingSpec stopping;
  OutputSpec output;
};

// A request whose prompt is token ids: what admission and the engine work on.
struct TokenizedRequest {
  GenerateSpec spec;  // its prompt fields are consumed
  std::vector<TokenId> prompt;
};

}  // namespace berth
