// How refusals that name a limit are made.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "berth/admission.h"
#include "berth/policy.h"

namespace berth {

inline Refusal LimitRefusal(RefusalReason reason, std::string message, const char* limit_name, std::int64_t limit,
                            std::int64_t asked) {
  Refusal refusal;
  refusal.reason = reason;
  refusal.message = std::move(message);
  refusal.limit_name = limit_name;
  refusal.limit = limit;
  refusal.asked = asked;
  return refusal;
}

// A place that was spare when the policy was made has no name in it.
inline std::string NamedTenant(const TenantPolicy& tenant) {
  return tenant.name.empty() ? "the tenant" : "tenant '" + tenant.name + "'";
}

}  // namespace berth
