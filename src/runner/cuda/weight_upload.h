// Weights on their way from the model file to the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "runner/cuda/cuda_weights.h"

namespace berth {

// Writes the copies piece by piece into two pinned buffers, on several threads, one buffer while the other's content
// goes to the device: the host's memory holds no more of the weights than that. Returns when all are there.
// `progress`, which may be empty, is called from this thread.
absl::Status UploadWeights(const std::vector<WeightCopy>& copies,
                           const std::function<void(std::int64_t done, std::int64_t total)>& progress);

// Fills the memory with small bfloat16 of both signs. What a multiplier draws depends on its operands, so they are no
// zeros.
absl::Status FillWithNoise(std::byte* memory, std::size_t bytes);

}  // namespace berth
