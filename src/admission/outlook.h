// What would become of a request, as a value.
#pragma once

#include <cstdint>
#include <optional>

#include "berth/admission.h"
#include "berth/clock.h"

namespace berth {

struct RequestOutlook {
  enum class Kind : std::uint8_t { kStarts, kQueues, kRefused };
  Kind kind = Kind::kStarts;
  Duration wait{};                 // kQueues: until it is expected to start
  std::optional<Refusal> refusal;  // kRefused: why
};

}  // namespace berth
