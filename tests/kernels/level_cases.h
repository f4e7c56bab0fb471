// The CPU levels that this machine can run: each kernel test runs at every one of them.
#pragma once

#include <vector>

#include "kernels/cpu/cpu_level.h"

namespace berth::test {

inline std::vector<cpu::CpuLevel> Levels() {
  std::vector<cpu::CpuLevel> levels;
  for (const cpu::CpuLevel level : {cpu::CpuLevel::kScalar, cpu::CpuLevel::kAvx2, cpu::CpuLevel::kAvx512Vnni}) {
    if (level <= cpu::DetectCpuLevel()) levels.push_back(level);
  }
  return levels;
}

}  // namespace berth::test
