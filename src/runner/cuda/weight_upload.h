// Weights on their way from the model file to the device.
#pragma once

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

}  // namespace berth
