// The engine's own refusals, each worded once; admission words the others.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "berth/admission.h"

namespace berth {

Refusal InvalidRequest(std::string field, std::string message);
Refusal TooLarge(const char* limit_name, std::int64_t limit, std::int64_t asked, std::string message);
Refusal Draining();
Refusal DrainTimeout();
Refusal BackendFault(const absl::Status& status);

}  // namespace berth
