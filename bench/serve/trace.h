// Arrivals that were recorded elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "berth/clock.h"

namespace berth::bench {

struct Arrival {
  Duration at{};  // since the first one
  std::int32_t prompt_tokens = 0;
  std::int32_t output_tokens = 0;
};

// Two kinds of file, told by their content, in order of time. CSV with a header and the columns time, prompt tokens and
// output tokens, the time in seconds or as "2023-11-16 18:17:03.9799600" (Azure's LLM inference traces); and JSONL with
// "timestamp" in milliseconds, "input_length" and "output_length" (Mooncake's). Errors name the line.
absl::StatusOr<std::vector<Arrival>> ParseTrace(std::string_view text);

}  // namespace berth::bench
