#include "kernels/cpu/cpu_level.h"

namespace berth::cpu {

CpuLevel DetectCpuLevel() {
#if defined(__x86_64__)
  // __builtin_cpu_supports checks XCR0 too: a level whose registers the system does not save is not reported.
  __builtin_cpu_init();
  // F16C, which not every compiler's builtin knows, came before AVX2 in every processor that has both.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vnni");
  if (avx2 && avx512) return CpuLevel::kAvx512Vnni;
  if (avx2) return CpuLevel::kAvx2;
#endif
  return CpuLevel::kScalar;
}

const char* CpuLevelName(CpuLevel level) {
  switch (level) {
    case CpuLevel::kScalar:
      return "scalar";
    case CpuLevel::kAvx2:
      return "avx2";
    case CpuLevel::kAvx512Vnni:
      return "avx512-vnni";
  }
  return "?";
}

}  // namespace berth::cpu
