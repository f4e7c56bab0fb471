// What the kernel says about this process, as every Prometheus client library shows it.
#pragma once

#include <string>

namespace berth {

struct ProcessStats {
  double cpu_seconds = 0.0;
  double resident_bytes = 0.0;
  double virtual_bytes = 0.0;
  double max_virtual_bytes = 0.0;  // infinite = no limit
  double open_fds = 0.0;
  double max_fds = 0.0;
  double start_time_seconds = 0.0;  // Unix time
  double threads = 0.0;
};

// Zeros where /proc cannot be read.
ProcessStats ReadProcessStats();

}  // namespace berth
