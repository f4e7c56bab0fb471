#include "engine/demand_limits.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "engine/refusals.h"

namespace berth {
namespace {

Policy WithoutHolds(Policy policy) {
  for (ClassPolicy& c : policy.classes) c.stop = ClassStop::kNone;
  return policy;
}

std::string Counted(std::int64_t count, const char* unit) { return std::to_string(count) + " " + unit; }

}  // namespace

DemandLimits::DemandLimits(const KvPoolShape& pool, const Policy& policy, std::int32_t vocab_size,
                           std::int32_t max_context_tokens)
    : policy_(policy),
      empty_server_(pool, WithoutHolds(policy)),
      vocab_size_(vocab_size),
      max_context_tokens_(max_context_tokens) {}

std::variant<KvDemand, Refusal> DemandLimits::EstimateDemand(ClassId service_class, TenantId tenant,
                                                             std::int64_t prompt_tokens, std::int32_t n,
                                                             const StoppingSpec& stopping) const {
  BERTH_CHECK(service_class >= 0 && service_class < std::ssize(policy().classes));
  std::variant<std::int64_t, Refusal> output_tokens = OutputTokens(service_class, prompt_tokens, stopping);
  if (auto* refusal = std::get_if<Refusal>(&output_tokens)) return std::move(*refusal);
  AdmissionRequest request;
  request.service_class = service_class;
  request.tenant = tenant;
  request.prompt_tokens = prompt_tokens;
  request.max_output_tokens = std::get<std::int64_t>(output_tokens);
  request.n = n;
  if (std::optional<Refusal> refusal = empty_server_.Judge(request, TimePoint{})) return *std::move(refusal);
  return KvDemand{.prompt_tokens = prompt_tokens,
                  .max_output_tokens = request.max_output_tokens,
                  .worst_blocks = empty_server_.WorstBlocksOf(request)};
}

// What is asked for, or a default cut to what context and class leave.
std::variant<std::int64_t, Refusal> DemandLimits::OutputTokens(ClassId service_class, std::int64_t prompt_tokens,
                                                               const StoppingSpec& stopping) const {
  if (prompt_tokens < 1) return InvalidRequest("prompt", "the prompt has no tokens: send at least one");
  const std::int64_t asked_tokens = stopping.max_output_tokens;
  if (asked_tokens < 1) {
    return InvalidRequest("stopping.max_output_tokens",
                          "stopping.max_output_tokens is " + std::to_string(asked_tokens) + ": ask for at least 1");
  }
  // The prompt is compared alone first, so that the sum below cannot overflow.
  if (prompt_tokens >= max_context_tokens_) {
    return TooLarge("context_tokens", max_context_tokens_, prompt_tokens + 1,
                    "the prompt has " + Counted(prompt_tokens, "tokens") + " and the context holds " +
                        std::to_string(max_context_tokens_) + " with at least one of output: shorten the prompt");
  }
  const std::int64_t left_tokens = max_context_tokens_ - prompt_tokens;
  if (!stopping.max_output_tokens_is_default) {
    if (asked_tokens <= left_tokens) return asked_tokens;
    return TooLarge("context_tokens", max_context_tokens_, prompt_tokens + asked_tokens,
                    "the prompt has " + Counted(prompt_tokens, "tokens") + " and asks for " +
                        Counted(asked_tokens, "more") + ", the context holds " + std::to_string(max_context_tokens_) +
                        ": ask for at most " + std::to_string(left_tokens) +
                        " in stopping.max_output_tokens, or shorten the prompt");
  }
  const ClassPolicy& c = policy().classes[static_cast<std::size_t>(service_class)];
  // A prompt that leaves nothing of its class's sequence is refused by the class's own rule.
  const std::int64_t left_in_class = std::max<std::int64_t>(1, c.max_sequence_tokens - prompt_tokens);
  return std::min({asked_tokens, left_tokens, left_in_class, c.max_output_tokens});
}

std::optional<Refusal> DemandLimits::CheckIds(const TokenizedRequest& request) const {
  const GenerateSpec& spec = request.spec;
  const auto outside = [this](TokenId id) { return id < 0 || id >= vocab_size_; };
  const auto refuse = [this](const char* field, TokenId id) {
    return InvalidRequest(field, std::string(field) + " has the id " + std::to_string(id) +
                                     ", outside the vocabulary: use 0 to " + std::to_string(vocab_size_ - 1));
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
