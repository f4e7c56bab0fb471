// A number that stands for what a step does.
#pragma once

#include <cstdint>

#include "berth/step.h"

namespace berth::test {

// Equal for plans with the same copies and, row for row, the same tokens on the same blocks with the same draws;
// wherever in the plan's lists they lie.
std::uint64_t DigestOf(const StepPlan& plan);

}  // namespace berth::test
