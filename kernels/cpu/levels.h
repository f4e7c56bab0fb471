// The attention and row kernels of each instruction set, for the dispatch alone.
#pragma once

#include "kernels/cpu/attention.h"
#include "kernels/cpu/ops.h"

namespace berth::cpu {

const AttentionKernels* AttentionKernelsScalar();
const OpsKernels* OpsKernelsScalar();
#if defined(__x86_64__)
const AttentionKernels* AttentionKernelsAvx2();
const AttentionKernels* AttentionKernelsAvx512();
const OpsKernels* OpsKernelsAvx2();
const OpsKernels* OpsKernelsAvx512();
#endif

}  // namespace berth::cpu
