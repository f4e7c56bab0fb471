// Numbers of one format as another, for the cases of the registry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/ops.h"
#include "kernels/cuda/bf16_data.h"

namespace berth::cuda {

inline std::vector<float> Floats(const std::vector<std::uint16_t>& bf16) {
  std::vector<float> values;
  values.reserve(bf16.size());
  for (const std::uint16_t value : bf16) values.push_back(static_cast<float>(FromBf16(value)));
  return values;
}

inline std::vector<double> Doubles(const std::vector<std::uint16_t>& bf16) {
  std::vector<double> values;
  values.reserve(bf16.size());
  for (const std::uint16_t value : bf16) values.push_back(FromBf16(value));
  return values;
}

inline std::vector<double> Doubles(const std::vector<float>& floats) { return {floats.begin(), floats.end()}; }

inline const cpu::OpsKernels& CpuOps() { return cpu::GetOpsKernels(cpu::DetectCpuLevel()); }

}  // namespace berth::cuda
