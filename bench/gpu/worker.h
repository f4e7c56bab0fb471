// Runs cases in a process of their own: a kernel that faults or never ends spoils the process that launched it, and the
// cases that follow go to a fresh one.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "case.h"
#include "device.h"
#include "timing.h"

namespace berth::bench {

enum class Status { kMeasured, kSkipped, kFailed };

struct Outcome {
  Status status = Status::kFailed;
  std::string note;  // why not measured
  Timing timing;
};

struct RunOptions {
  int repetitions = 50;
  std::int64_t memory_limit_bytes = 0;
  int case_seconds = 60;  // longer is a failure
};

// Calls `told` for each case in order, with the device. False, and the reason in `error`, where there is none to run
// on. The calling process never touches CUDA.
bool RunCases(const std::vector<Case>& cases, const RunOptions& options,
              const std::function<void(const DeviceFacts&, const Outcome&)>& told, std::string* error);

}  // namespace berth::bench
