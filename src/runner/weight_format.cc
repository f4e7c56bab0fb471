#include "runner/weight_format.h"

#include "base/check.h"

namespace berth {

cpu::WeightFormat WeightFormatOf(GgufTensorType type) {
  switch (type) {
    case GgufTensorType::kF32:
      return cpu::WeightFormat::kF32;
    case GgufTensorType::kF16:
      return cpu::WeightFormat::kF16;
    case GgufTensorType::kBF16:
      return cpu::WeightFormat::kBF16;
    case GgufTensorType::kQ4_0:
      return cpu::WeightFormat::kQ4_0;
    case GgufTensorType::kQ4_1:
      return cpu::WeightFormat::kQ4_1;
    case GgufTensorType::kQ5_0:
      return cpu::WeightFormat::kQ5_0;
    case GgufTensorType::kQ8_0:
      return cpu::WeightFormat::kQ8_0;
    case GgufTensorType::kQ6_K:
      return cpu::WeightFormat::kQ6_K;
  }
  CheckFailed(__FILE__, __LINE__, "a tensor type that the model reader lets through has kernels",
              GgufTensorTypeName(type));
}

}  // namespace berth
