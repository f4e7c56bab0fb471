#include "kernels/cpu/simd/vec_avx2.h"
// After the vectors it is written in.
#include "kernels/cpu/attention_impl.h"
#include "kernels/cpu/levels.h"

namespace berth::cpu {

const AttentionKernels* AttentionKernelsAvx2() { return &kAttentionKernels; }

}  // namespace berth::cpu
