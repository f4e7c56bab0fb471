#include "kernels/cpu/simd/vec_scalar.h"
// After the vectors it is written in.
#include "kernels/cpu/levels.h"
#include "kernels/cpu/ops_impl.h"

namespace berth::cpu {

const OpsKernels* OpsKernelsScalar() { return &kOpsKernels; }

}  // namespace berth::cpu
