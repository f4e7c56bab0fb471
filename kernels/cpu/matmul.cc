#include "kernels/cpu/matmul.h"

#include "kernels/cpu/matmul_levels.h"
#include "kernels/cpu/packed_layout.h"

namespace berth::cpu {

PackedKind ChoosePackedKind(WeightFormat format, bool float32) {
  if (float32) return PackedKind::kPanelF32;
  switch (format) {
    case WeightFormat::kF32:
      return PackedKind::kPanelF32;
    case WeightFormat::kF16:
      return PackedKind::kPanelF16;
    case WeightFormat::kBF16:
      return PackedKind::kPanelBF16;
    case WeightFormat::kQ4_0:
      return PackedKind::kPanelU4Symmetric;
    case WeightFormat::kQ4_1:
      return PackedKind::kPanelU4;
    case WeightFormat::kQ5_0:
    case WeightFormat::kQ8_0:
      return PackedKind::kPanelU8;
    case WeightFormat::kQ6_K:
      return PackedKind::kPanelU8x16;
  }
  return PackedKind::kPanelF32;
}

std::size_t PackedBytes(PackedKind kind, std::int32_t n, std::int32_t k) {
  return static_cast<std::size_t>(NumPanels(n)) * LayoutOf(kind, k).panel_bytes;
}

std::size_t ActivationBytes(PackedKind kind, std::int32_t k) { return PreparedRowBytes(kind, k); }

bool SameActivations(PackedKind a, PackedKind b) { return IsFloatKind(a) == IsFloatKind(b); }

const MatMulKernels& GetMatMulKernels(CpuLevel level) {
  switch (level) {
#if defined(__x86_64__)
    case CpuLevel::kAvx512Vnni:
      return kAvx512MatMul;
    case CpuLevel::kAvx2:
      return kAvx2MatMul;
#endif
    default:
      return kScalarMatMul;
  }
}

}  // namespace berth::cpu
