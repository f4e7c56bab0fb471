// What one core can do at most: the denominators of the kernels' figures.
#pragma once

#include <cstddef>

#include "kernels/cpu/cpu_level.h"

namespace berth::bench {

struct MachinePeak {
  double integer_gops = 0.0;  // byte products and additions; 0 where not known
  double float_gflops = 0.0;  // fma, counted as two
  double read_gb_per_s = 0.0;
};

// Register loops for the level's instructions, and a streaming read of `read_bytes`. Takes about a second.
MachinePeak MeasurePeak(cpu::CpuLevel level, std::size_t read_bytes);

}  // namespace berth::bench
