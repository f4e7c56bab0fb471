#include "engine/request_limits.h"

#include <algorithm>
#include <string>

#include "admission/demand.h"
#include "engine/refusals.h"

namespace berth {
namespace {

std::string Counted(std::int64_t count, const char* unit) { return std::to_string(count) + " " + unit; }

}  // namespace

std::variant<KvDemand, Refusal> RequestLimits::EstimateDemand(std::int64_t prompt_tokens,
                                                              const StoppingSpec& stopping) const {
  if (prompt_tokens < 1) return InvalidRequest("prompt", "the prompt has no tokens: send at least one");
  const std::int64_t asked_tokens = stopping.max_output_tokens;
  if (asked_tokens < 1) {
    return InvalidRequest("stopping.max_output_tokens",
                          "stopping.max_output_tokens is " + std::to_string(asked_tokens) + ": ask for at least 1");
  }
  // The prompt is compared alone first, so that the sum below cannot overflow.
  if (prompt_tokens >= max_context_tokens) {
    return TooLarge("context_tokens", max_context_tokens, prompt_tokens + 1,
                    "the prompt has " + Counted(prompt_tokens, "tokens") + " and the context holds " +
                        std::to_string(max_context_tokens) + " with at least one of output: shorten the prompt");
  }
  KvDemand demand;
  demand.prompt_tokens = prompt_tokens;
  demand.max_output_tokens = asked_tokens;
  if (prompt_tokens + asked_tokens > max_context_tokens) {
    const std::int64_t left_tokens = max_context_tokens - prompt_tokens;
    if (!stopping.max_output_tokens_is_default) {
      return TooLarge("context_tokens", max_context_tokens, prompt_tokens + asked_tokens,
                      "the prompt has " + Counted(prompt_tokens, "tokens") + " and asks for " +
                          Counted(asked_tokens, "more") + ", the context holds " + std::to_string(max_context_tokens) +
                          ": ask for at most " + std::to_string(left_tokens) +
                          " in stopping.max_output_tokens, or shorten the prompt");
    }
    demand.max_output_tokens = left_tokens;
  }
  demand.worst_blocks = WorstBlocks(prompt_tokens, demand.max_output_tokens, /*n=*/1, pool.block_tokens);
  if (demand.worst_blocks > pool.num_blocks) {
    return TooLarge("kv_blocks", pool.num_blocks, demand.worst_blocks,
                    "the request may need " + Counted(demand.worst_blocks, "KV blocks") + " of " +
                        Counted(pool.block_tokens, "tokens") + " and the pool has " + std::to_string(pool.num_blocks) +
                        ": shorten the prompt or ask for fewer output tokens");
  }
  return demand;
}

std::optional<Refusal> RequestLimits::Check(const TokenizedRequest& request) const {
  const GenerateSpec& spec = request.spec;
  if (spec.sampling.n != 1) return OneChoiceOnly(spec.sampling.n);
  const auto outside = [this](TokenId id) { return id < 0 || id >= vocab_size; };
  const auto refuse = [this](const char* field, TokenId id) {
    return InvalidRequest(field, std::string(field) + " has the id " + std::to_string(id) +
                                     ", outside the vocabulary: use 0 to " + std::to_string(vocab_size - 1));
  };
  if (const auto it = std::ranges::find_if(request.prompt, outside); it != request.prompt.end()) {
    return refuse("token_ids", *it);
  }
  for (const auto& [id, bias] : spec.sampling.logit_bias) {
    if (outside(id)) return refuse("sampling.logit_bias", id);
  }
  const auto& stop_ids = spec.stopping.stop_token_ids;
  if (const auto it = std::ranges::find_if(stop_ids, outside); it != stop_ids.end()) {
    return refuse("stopping.stop_token_ids", *it);
  }
  return std::nullopt;
}

}  // namespace berth
