// What one request may ask for at most, whatever else is going on: a policy as it reads to a newcomer.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "admission/admission.h"
#include "berth/admission.h"
#include "berth/kv.h"
#include "berth/policy.h"
#include "berth/request.h"

namespace berth {

// Immutable: any thread may ask, without a lock. A new policy makes new limits.
class DemandLimits {
 public:
  // REQUIRES: the policy is valid for the pool. `vocab_size`: the ids that both the tokenizer and the backend know.
  DemandLimits(const KvPoolShape& pool, const Policy& policy, std::int32_t vocab_size, std::int32_t max_context_tokens);

  const Policy& policy() const { return policy_; }

  // As Engine::EstimateDemand. REQUIRES: the class is one of the policy's, and the tenant.
  std::variant<KvDemand, Refusal> EstimateDemand(ClassId service_class, TenantId tenant, std::int64_t prompt_tokens,
                                                 std::int32_t n, const StoppingSpec& stopping) const;

  // Refuses ids outside the vocabulary.
  std::optional<Refusal> CheckIds(const TokenizedRequest& request) const;

 private:
  std::variant<std::int64_t, Refusal> OutputTokens(ClassId service_class, std::int64_t prompt_tokens,
                                                   const StoppingSpec& stopping) const;

  const Policy policy_;
  const Admission empty_server_;  // with no class on hold: what it refuses now, no waiting could change
  const std::int32_t vocab_size_;
  const std::int32_t max_context_tokens_;
};

}  // namespace berth
