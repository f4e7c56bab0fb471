// What the kernel says about a process, as every Prometheus client library shows it.
#pragma once

#include <sys/types.h>

namespace berth {

struct ProcessStats {
  double cpu_seconds = 0.0;
  double resident_bytes = 0.0;
  double peak_resident_bytes = 0.0;
  double virtual_bytes = 0.0;
  double max_virtual_bytes = 0.0;  // infinite = no limit
  double open_fds = 0.0;
  double max_fds = 0.0;
  double start_time_seconds = 0.0;  // Unix time
  double threads = 0.0;
};

// Of this process, or of `pid`. Zeros for what /proc does not tell: there is no such process, or it is not ours to look
// into.
ProcessStats ReadProcessStats(pid_t pid = 0);

}  // namespace berth
