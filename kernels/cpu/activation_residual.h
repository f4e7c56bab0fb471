// What rounding activations to int8 lost. Prepared and multiplied like a row of its own, and added, it brings a product
// to about 15 bits: y = W · q(x) + W · q(x − q(x)). For the few products whose rounding shows in the answers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/matmul.h"

namespace berth::cpu {

// Whether prepare_row rounds for this kind at all.
bool RoundsActivations(PackedKind kind);

// residual = x minus what `prepared`, made from x by prepare_row, stands for. REQUIRES: RoundsActivations(kind).
void ActivationResidual(const float* x, std::int32_t k, const std::byte* prepared, float* residual);

}  // namespace berth::cpu
