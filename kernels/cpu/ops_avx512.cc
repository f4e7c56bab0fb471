#include "kernels/cpu/simd/vec_avx512.h"
// After the vectors it is written in.
#include "kernels/cpu/levels.h"
#include "kernels/cpu/ops_impl.h"

namespace berth::cpu {

const OpsKernels* OpsKernelsAvx512() { return &kOpsKernels; }

}  // namespace berth::cpu
