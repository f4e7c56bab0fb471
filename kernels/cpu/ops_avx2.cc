#include "kernels/cpu/simd/vec_avx2.h"
// After the vectors it is written in.
#include "kernels/cpu/levels.h"
#include "kernels/cpu/ops_impl.h"

namespace berth::cpu {

const OpsKernels* OpsKernelsAvx2() { return &kOpsKernels; }

}  // namespace berth::cpu
