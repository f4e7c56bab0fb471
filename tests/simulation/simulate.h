// Runs scenarios through the real core and checks every invariant after every plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenario.h"

namespace berth::simulation {

struct Report {
  std::optional<std::string> violation;
  std::int64_t requests = 0;
  std::int64_t plans = 0;
  std::int64_t starts = 0;
  std::int64_t preemptions = 0;
  std::int64_t complete = 0;
  std::int64_t swapped_out_blocks = 0;
  std::int64_t swapped_in_blocks = 0;
};

Report Simulate(const Scenario& scenario);

// The indices of the fewest events found that still break an invariant of the same name.
std::vector<std::size_t> Shrink(const Scenario& scenario, const std::string& violation);
Scenario Keep(const Scenario& scenario, const std::vector<std::size_t>& events);

}  // namespace berth::simulation
