// The kernels of each level. Internal.
//
// matmul_avx2.cc and matmul_avx512.cc are compiled for their instruction set. An inline function or template of
// external linkage that they emit could be the copy the linker keeps for the whole program, which would then fault on a
// lesser machine. So they include nothing of the standard library but <cstddef> and <cstdint>, call only functions of
// internal linkage and intrinsics, and export one symbol each.
#pragma once

#include "kernels/cpu/matmul.h"

namespace berth::cpu {

extern const MatMulKernels kScalarMatMul;
#if defined(__x86_64__)
extern const MatMulKernels kAvx2MatMul;
extern const MatMulKernels kAvx512MatMul;
#endif

// Activations with a block maximum below this count as zeros: 127 / max stays finite.
inline constexpr float kSmallestBlockMaximum = 0x1p-120f;

}  // namespace berth::cpu
