// The paged K and V of every layer on the device, and pinned memory of the host for what is swapped out. On the device
// a part (a layer's keys, its values, or with int8 their scales) has its blocks side by side: what attention of a layer
// reads lies together. In the host's memory a block lies in one piece.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/params/elementwise.h"
#include "kernels/params/kv_cache.h"
#include "runner/cuda/cuda_call.h"
#include "runner/cuda/cuda_shape.h"

namespace berth {

// Of each part; multiples of 16.
struct KvBlockBytes {
  std::int64_t elements = 0;
  std::int64_t scales = 0;  // 0 where elements have none
  std::int64_t block = 0;   // all parts
};
KvBlockBytes KvBlockBytesOf(const CudaShape& shape);

// Block ids on the device.
struct DeviceCopies {
  const std::int32_t* from = nullptr;
  const std::int32_t* to = nullptr;
  std::int32_t count = 0;
};

class CudaKvPool {
 public:
  static absl::StatusOr<CudaKvPool> Create(const CudaShape& shape);

  cuda::KvCache CacheOf(std::int32_t layer) const;

  // Each enqueues the copies, a launch for elements and one for scales: the device reads and writes the host's pinned
  // memory itself, in long runs, instead of waiting for a copy of each part of each block.
  absl::Status CopyBlocks(const DeviceCopies& copies, cudaStream_t stream) const;
  absl::Status SwapOut(const DeviceCopies& copies, cudaStream_t stream) const;  // block -> host block
  absl::Status SwapIn(const DeviceCopies& copies, cudaStream_t stream) const;

 private:
  // A pool's elements and scales.
  struct Blocks {
    cuda::BlockParts elements;
    cuda::BlockParts scales;
  };

  CudaKvPool() = default;

  absl::Status Copy(const DeviceCopies& copies, const Blocks& from, const Blocks& to, cudaStream_t stream) const;

  CudaShape shape_;
  KvBlockBytes bytes_;
  CudaBuffer device_;
  CudaBuffer host_;
  Blocks device_blocks_{};
  Blocks host_blocks_{};
};

}  // namespace berth
