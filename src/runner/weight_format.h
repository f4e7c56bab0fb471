// How the kernels call what a model file calls a tensor's type.
#pragma once

#include "kernels/cpu/dequantize.h"
#include "model/gguf.h"

namespace berth {

// Crashes on a type without kernels: the model reader lets none through.
cpu::WeightFormat WeightFormatOf(GgufTensorType type);

}  // namespace berth
