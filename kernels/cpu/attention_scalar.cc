#include "kernels/cpu/simd/vec_scalar.h"
// After the vectors it is written in.
#include "kernels/cpu/attention_impl.h"
#include "kernels/cpu/levels.h"

namespace berth::cpu {

const AttentionKernels* AttentionKernelsScalar() { return &kAttentionKernels; }

}  // namespace berth::cpu
