// One device by its number.
#pragma once

#include "absl/status/statusor.h"
#include "runner/cuda/cuda_backend.h"

namespace berth {

// NotFound, in one line, where there is no such device or it is one that this build cannot run on.
absl::StatusOr<CudaDevice> FindCudaDevice(int index);

}  // namespace berth
