// The CPU levels that this machine can run: each kernel test runs at every one of them.
#pragma once

#include <vector>

#include "kernels/cpu/cpu_level.h"

namespace berth::cpu::test {

inline std::vector<CpuLevel> Levels() {
  std::vector<CpuLevel> levels;
  for (const CpuLevel level : {CpuLevel::kScalar, CpuLevel::kAvx2, CpuLevel::kAvx512Vnni}) {
    if (level <= DetectCpuLevel()) levels.push_back(level);
  }
  return levels;
}

}  // namespace berth::cpu::test
