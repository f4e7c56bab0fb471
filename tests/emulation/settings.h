// How the emulation runs, and what it has counted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace berth::emulation {

// Which of the threads (and blocks) that could run goes on. CUDA promises none of them; each finds other mistakes.
enum class Order {
  kForward,  // the lowest thread of the running warp, blocks from the first
  kReverse,  // the highest, blocks from the last
  kRandom,   // any warp, any thread, blocks in a random cycle
  kSkew,     // some warps run far ahead of others
};

struct Settings {
  Order order = Order::kForward;
  std::uint64_t seed = 1;
  // Of the one device there is.
  std::size_t device_memory_bytes = std::size_t{4} << 30;
};

// From BERTH_EMULATION_ORDER (forward, reverse, random, skew) and BERTH_EMULATION_SEED when first asked for; a test may
// change them while no stream has pending work.
Settings& settings();

struct Counters {
  std::uint64_t kernels = 0;
  std::uint64_t threads = 0;
  std::uint64_t switches = 0;
  std::uint64_t warp_collectives = 0;
  std::uint64_t matrix_products = 0;
  // ldmatrix takes one pass of shared memory for eight rows in different banks, and one more for each row that falls
  // into the banks of another.
  std::uint64_t matrix_loads = 0;
  std::uint64_t bank_conflicts = 0;
};

Counters& counters();

// Numbers for the random orders: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next();
  // From 0 to bound - 1. REQUIRES: bound > 0.
  std::uint64_t Below(std::uint64_t bound) { return Next() % bound; }

 private:
  std::uint64_t state_;
};

}  // namespace berth::emulation
