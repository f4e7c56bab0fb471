#include "kernels/cpu/ops.h"

#include "kernels/cpu/levels.h"

namespace berth::cpu {

const OpsKernels& GetOpsKernels(CpuLevel level) {
#if defined(__x86_64__)
  if (level == CpuLevel::kAvx512Vnni) return *OpsKernelsAvx512();
  if (level == CpuLevel::kAvx2) return *OpsKernelsAvx2();
#endif
  static_cast<void>(level);
  return *OpsKernelsScalar();
}

}  // namespace berth::cpu
