#include "engine/end_rule.h"

#include <algorithm>
#include <iterator>

namespace berth {
namespace {

std::vector<TokenId> StopTokens(const Tokenizer& tokenizer, const StoppingSpec& stopping) {
  std::vector<TokenId> ids = stopping.stop_token_ids;
  if (!stopping.ignore_eos) ids.insert(ids.end(), tokenizer.eos().begin(), tokenizer.eos().end());
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

EndRule::EndRule(const Tokenizer& tokenizer, const StoppingSpec& stopping, std::int64_t max_output_tokens,
                 std::span<const TokenId> never_drawn)
    : min_output_tokens_(stopping.min_output_tokens),
      max_output_tokens_(max_output_tokens),
      stop_tokens_(StopTokens(tokenizer, stopping)) {
  if (min_output_tokens_ > 0) std::ranges::set_union(never_drawn, stop_tokens_, std::back_inserter(early_banned_));
}

std::optional<FinishReason> EndRule::After(TokenId token, std::int64_t output_tokens) const {
  if (MayStop(output_tokens - 1) && std::ranges::binary_search(stop_tokens_, token)) return FinishReason::kStopToken;
  if (output_tokens >= max_output_tokens_) return FinishReason::kLength;
  return std::nullopt;
}

}  // namespace berth
