// How far the weights are on their way to a device. A model that is there at once shows nothing.
#pragma once

#include "cli/backend_plan.h"

namespace berth::cli {

// A line on standard error that rewrites itself, where a person looks on; nothing elsewhere.
LoadProgress ShowLoadProgress();
// A line in the server's log for every tenth.
LoadProgress LogLoadProgress();

}  // namespace berth::cli
