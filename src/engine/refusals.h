// The engine's refusals, each worded once.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "berth/admission.h"

namespace berth {

Refusal InvalidRequest(std::string field, std::string message);
Refusal TooLarge(const char* limit_name, std::int64_t limit, std::int64_t asked, std::string message);
Refusal OneChoiceOnly(std::int32_t n);
Refusal QueueFull(std::int64_t max_queued_requests);
Refusal DuplicateRequestId(const std::string& request_id);
Refusal Draining();
Refusal CancelledByClient();
// The deadline came before there was an answer.
Refusal DeadlineExceeded();
Refusal BackendFault(const absl::Status& status);

}  // namespace berth
