// When the ids of a choice's tokens end it: what the engine's thread and the choice's text must agree on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "berth/event.h"
#include "berth/request.h"
#include "berth/units.h"
#include "tokenizer/tokenizer.h"

namespace berth {

// A stop token (the model's end-of-text tokens unless ignore_eos, and stop_token_ids) ends the choice, but not among
// its first min_output_tokens, where none may be drawn; max_output_tokens ends it in any case. Immutable.
class EndRule {
 public:
  // `never_drawn`: ids that are no tokens. Sorted.
  EndRule(const Tokenizer& tokenizer, const StoppingSpec& stopping, std::int64_t max_output_tokens,
          std::span<const TokenId> never_drawn);

  // kStopToken or kLength where the choice ends with `token`, its output_tokens-th.
  std::optional<FinishReason> After(TokenId token, std::int64_t output_tokens) const;
  // Whether text takes part in stop strings behind so many tokens.
  bool MayStop(std::int64_t output_tokens) const { return output_tokens >= min_output_tokens_; }

  // What must not be drawn among the first min_output_tokens: never_drawn and the stop tokens. Sorted.
  std::span<const TokenId> early_banned() const { return early_banned_; }

 private:
  std::int64_t min_output_tokens_;
  std::int64_t max_output_tokens_;
  std::vector<TokenId> stop_tokens_;  // sorted
  std::vector<TokenId> early_banned_;
};

}  // namespace berth
