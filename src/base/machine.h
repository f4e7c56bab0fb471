// What this process may use of the machine: a container's limits count, not the host's size.
#pragma once

#include <cstdint>
#include <string>

namespace berth {

// CPUs this process may run on: its affinity mask, cut to the CPU quota of its control groups (v1 or v2), rounded up.
// At least 1. `root` goes in front of /proc and /sys, so that a test can bring its own tree.
int AllowedCpus(const std::string& root = "");

// Bytes that can still be allocated without swapping: the system's MemAvailable, cut to what the memory limits of this
// process's control groups leave (page cache that can be dropped counts as free). 0 where nothing can be read.
std::int64_t AvailableMemoryBytes(const std::string& root = "");

}  // namespace berth
