// How long work on the device takes.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "device.h"

namespace berth::bench {

// Enqueues the work that is measured, once.
using Launch = std::function<void(cudaStream_t)>;

// In seconds; of `repetitions` runs.
struct Timing {
  int repetitions = 0;
  double median = 0;
  double lowest = 0;
  double highest = 0;
  // Tenth and ninetieth percentile.
  double p10 = 0;
  double p90 = 0;
};

// Every run begins with an L2 cache that holds nothing of the work's: a buffer of more than twice its size is written
// in between. That also keeps the device busy while the run is enqueued, so that the time between the two events holds
// no time of the host.
class Timer {
 public:
  explicit Timer(const DeviceFacts& facts);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  Timing Measure(const Launch& launch, int repetitions);

 private:
  double RunOnce(const Launch& launch);

  Arena memory_;
  std::size_t flush_bytes_;
  std::byte* flush_buffer_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace berth::bench
