// A step's copies of KV blocks: swap_out, swap_in, block copies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runner/cuda/cuda_call.h"
#include "runner/cuda/cuda_shape.h"
#include "runner/cuda/kv_pool.h"
#include "runner/step_inputs.h"

namespace berth {

// Called from one thread.
class KvCopies {
 public:
  // What the lists of ids take on the device for each block of the pool, and as much for each of the host's: a block is
  // the target of one block copy at most, and a host block is named once.
  static constexpr std::int64_t kBytesPerBlock = 2 * sizeof(std::int32_t);

  static absl::StatusOr<KvCopies> Create(const CudaShape& shape);

  // Enqueues the copies behind what `compute` has; what it gets later comes behind them. Blocks go out on a stream of
  // their own while others come in: the bus has a lane for each direction, and no block or host block is in both.
  // `slot`: of the step, 0 or 1; the one before with this slot is done.
  absl::Status Enqueue(const StepInputs& inputs, const CudaKvPool& pool, int slot, cudaStream_t compute) const;

 private:
  KvCopies() = default;

  absl::Status SwapOutBeside(const DeviceCopies& copies, const CudaKvPool& pool, cudaStream_t compute) const;

  std::size_t list_bytes_ = 0;
  CudaBuffer device_;
  std::array<CudaBuffer, 2> pinned_;
  CudaEvent before_;  // what the step's copies come behind
  CudaEvent out_;     // all is swapped out
  CudaStream stream_;
};

}  // namespace berth
