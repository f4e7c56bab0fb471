// Runs a scenario through the threaded engine: several callers, a backend that is done when it pleases, and time that
// moves with its steps.
#pragma once

#include <cstdint>
#include <string>

#include "scenario.h"

namespace berth::simulation {

struct ThreadedReport {
  std::string violation;  // empty = none
  std::int64_t requests = 0;
  std::int64_t submitted = 0;
  std::int64_t complete = 0;
  std::int64_t preemptions = 0;
  std::int64_t swapped_blocks = 0;  // back in
  std::int64_t failed_steps = 0;
};

// Aborts, naming the seed, where the engine does not come to its end within a minute.
ThreadedReport RunThreaded(const Scenario& scenario);

}  // namespace berth::simulation
