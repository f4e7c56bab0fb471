// How refusals that name a limit are made.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "berth/admission.h"

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

}  // namespace berth
