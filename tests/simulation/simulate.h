// Runs scenarios through the real core and checks every invariant after every plan.
#pragma once

#include <cstdint>
#include <functional>
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
  std::vector<std::uint64_t> steps;  // DigestOf each
};

// Some steps are drafted while the one before runs. In every fourth scenario, each step is held against what is
// planned without drafts.
Report Simulate(const Scenario& scenario);

// Whether two violations are of the same invariant.
bool SameKind(const std::string& a, const std::string& b);

// The indices of the fewest events found with which the scenario still fails.
std::vector<std::size_t> Shrink(const Scenario& scenario, const std::function<bool(const Scenario&)>& fails);
Scenario Keep(const Scenario& scenario, const std::vector<std::size_t>& events);

}  // namespace berth::simulation
