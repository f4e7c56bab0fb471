// What a running request tells its caller, in order: Admitted, TokenDelta*, Finished (one per choice), Completed; or
// Failed at any point, as the last event. Exactly one of Completed and Failed ends every request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "berth/admission.h"
#include "berth/clock.h"
#include "berth/units.h"

namespace berth {

struct TopLogprob {
  TokenId token_id = kNoToken;
  float logprob = 0.0F;
};

// One token's log-probability (natural log, of the raw logits) and those of the most likely tokens, best first.
struct TokenLogprob {
  TokenId token_id = kNoToken;
  float logprob = 0.0F;
  std::vector<TopLogprob> top;
};

enum class FinishReason : std::uint8_t { kStopToken, kStopString, kLength, kDeadline };

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t output_tokens = 0;
  std::int64_t reserved_blocks = 0;
  std::int64_t peak_blocks = 0;      // most blocks really held at once
  double kv_block_seconds = 0.0;     // reserved blocks · time held: the bill
  double held_block_seconds = 0.0;   // blocks really held · time
  double accelerator_seconds = 0.0;  // backend time spent on this request
  std::int64_t preemptions = 0;
  std::int64_t recomputed_tokens = 0;  // computed again after a preemption
  Duration queue_time{};
  Duration prefill_time{};
  Duration decode_time{};
  Duration time_to_first_token{};  // from arrival
};

struct Admitted {
  std::string request_id;
  std::int64_t reserved_blocks = 0;
  Duration queue_time{};
  std::int64_t max_output_tokens = 0;  // after defaults and caps
  std::uint64_t seed = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
};

// What was added to one choice. `text` is whole characters; it may lag behind token_ids (an unfinished character, a
// possible stop string) and catches up in a later delta.
struct TokenDelta {
  std::int32_t index = 0;
  std::string text;
  std::vector<TokenId> token_ids;
  std::vector<TokenLogprob> logprobs;  // one per token id where asked for
};

struct Finished {
  std::int32_t index = 0;
  FinishReason reason = FinishReason::kLength;
  // The stop string or stop token that ended the choice.
  std::variant<std::monostate, std::string, TokenId> stop_match;
};

struct Completed {
  Usage usage;
  // Of prompt tokens 1 .. P-1 (the first has no predecessor), where asked for.
  std::vector<TokenLogprob> prompt_logprobs = {};
  // Whether what its class requires was there before its deadline; absent where it had none.
  std::optional<bool> met_deadline = {};
};

struct Failed {
  Refusal refusal;
  Usage usage;
  std::optional<bool> met_deadline = {};  // as in Completed
};

using StreamEvent = std::variant<Admitted, TokenDelta, Finished, Completed, Failed>;

// Receives one request's events on the engine's output thread, in order. Must not block and must not call back into the
// engine other than Cancel.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void OnEvent(StreamEvent event) = 0;
};

}  // namespace berth
