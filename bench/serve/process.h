// What a process has taken of the machine.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace berth::bench {

struct ProcessUse {
  double cpu_seconds = 0.0;
  std::int64_t peak_bytes = 0;  // most memory ever resident
};

// From /proc; zeros where there is no such process.
ProcessUse UseOf(pid_t pid);

}  // namespace berth::bench
