// How far the weights are on their way to a device. A model that is there at once shows nothing.
#pragma once

#include <cstdint>
#include <functional>

#include "cli/backend_plan.h"

namespace berth::cli {

// A line on standard error that rewrites itself, where a person looks on; nothing elsewhere.
LoadProgress ShowLoadProgress();
// Calls `tell` with each multiple of `step` percent that is reached, once.
LoadProgress EveryPercent(int step, std::function<void(int percent, std::int64_t total)> tell);

}  // namespace berth::cli
