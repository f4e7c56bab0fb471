// Counts heap allocations of the test program that links allocation_counter.cc into itself.
#pragma once

#include <cstdint>

namespace berth::test {

// Calls of operator new so far, all threads.
std::int64_t Allocations();
// Bytes taken and not yet given back, as the allocator rounds them.
std::int64_t AllocatedBytes();

}  // namespace berth::test
