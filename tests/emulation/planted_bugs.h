// Kernels with one mistake each, of the kinds that CUDA code makes: what finds them is planted_bug_test.cc's table.
#pragma once

#include <cuda_runtime_api.h>

namespace berth::planted {

enum class Bug {
  kMissingBarrierBeforeRead,
  kMissingBarrierBeforeOverwrite,
  kMissingSyncWarp,
  kMissingWaitForCopies,
  kMissingBarrierAfterWait,
  kReadPastAllocation,
  kWritePastAllocation,
  kSharedArrayOverrun,
  kLoadMatrixOutside,
  kMisalignedCopy,
  kDivergentBarrier,
  kEndBeforeBarrier,
  kLaneMissing,
  kShuffleFromAbsentLane,
  kWrongBarrierCount,
  kUninitialisedShared,
  kRaceBetweenBlocks,
  kMissingFence,
  kTooMuchShared,
  kDynamicBeyondLaunch,
};

inline constexpr int kThreads = 64;

// Each kernel means to write out[t] = in[max(t - 1, 0)] for the kThreads threads.
cudaError_t Launch(Bug bug, const float* in, float* out, unsigned* counter);

}  // namespace berth::planted
