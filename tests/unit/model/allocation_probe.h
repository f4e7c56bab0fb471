// Watches operator new, which this program replaces: proof that a file's claims never become memory.
#pragma once

#include <cstddef>

namespace berth::test {

// What this thread allocated since the probe was made. One at a time.
class AllocationProbe {
 public:
  AllocationProbe();
  ~AllocationProbe();
  AllocationProbe(const AllocationProbe&) = delete;
  AllocationProbe& operator=(const AllocationProbe&) = delete;

  std::size_t largest_bytes() const;  // the largest single allocation
  std::size_t total_bytes() const;    // of all, freed or not
};

}  // namespace berth::test
