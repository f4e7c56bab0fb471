// Which instruction sets the kernels may use. Results are bit-identical within one level, not between levels.
#pragma once

#include <cstdint>

namespace berth::cpu {

enum class CpuLevel : std::uint8_t {
  kScalar,      // any machine
  kAvx2,        // AVX2 + FMA + F16C
  kAvx512Vnni,  // AVX-512 F/BW/VL/DQ + VNNI
};

// The best level of this machine (cpuid, and the state the operating system saves).
CpuLevel DetectCpuLevel();
const char* CpuLevelName(CpuLevel level);

}  // namespace berth::cpu
