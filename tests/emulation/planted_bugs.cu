#include "emulation/planted_bugs.h"

#include "kernels/gpu.h"

namespace berth::planted {
namespace {

__device__ int Thread() { return static_cast<int>(threadIdx.x); }
__device__ int Neighbour() { return max(Thread() - 1, 0); }

__global__ void MissingBarrierBeforeRead(const float* in, float* out) {
  BERTH_SHARED(float[kThreads], slot);
  slot[Thread()] = in[Thread()];
  out[Thread()] = slot[Neighbour()];
}

__global__ void MissingBarrierBeforeOverwrite(const float* in, float* out) {
  BERTH_SHARED(float[kThreads], slot);
  slot[Thread()] = in[Thread()];
  __syncthreads();
  out[Thread()] = slot[Neighbour()];
  slot[Thread()] = 0;
  __syncthreads();
}

// As if the lanes of a warp ran in lockstep.
__global__ void MissingSyncWarp(const float* in, float* out) {
  BERTH_SHARED(float[kThreads], slot);
  slot[Thread()] = in[Thread()];
  __syncthreads();
  const float own = slot[Neighbour()];
  __syncthreads();
  slot[Thread()] = own;
  const int in_warp = Thread() % 32 == 0 ? Thread() : Thread() - 1;
  slot[Thread()] = (slot[in_warp] > 0 ? 1.0f : 0.0f) * own;
  __syncwarp();
  out[Thread()] = slot[Thread()];
}

__global__ void MissingWaitForCopies(const float* in, float* out) {
  BERTH_SHARED(float[kThreads], slot);
  gpu::CopyAsync<4>(&slot[Thread()], in + Thread());
  gpu::CommitCopies();
  __syncthreads();
  out[Thread()] = slot[Neighbour()];
}

__global__ void MissingBarrierAfterWait(const float* in, float* out) {
  BERTH_SHARED(float[kThreads], slot);
  gpu::CopyAsync<4>(&slot[Thread()], in + Thread());
  gpu::CommitCopies();
  gpu::WaitCopies<0>();
  out[Thread()] = slot[Neighbour()];
}

__global__ void ReadPastAllocation(const float* in, float* out) {
  out[Thread()] = in[Neighbour()];
  constexpr float kNeverThere = 12345.0f;
  if (in[Thread() + 1] == kNeverThere) out[Thread()] = 0;
}

__global__ void WritePastAllocation(const float* in, float* out) {
  out[Thread()] = in[Neighbour()];
  if (Thread() == kThreads - 1) out[Thread() + 1] = 0;
}

__global__ void SharedArrayOverrun(const float* in, float* out) {
  BERTH_SHARED(float[kThreads], slot);
  const int last = static_cast<int>(in[kThreads - 1]);  // kThreads: one more than the last index
  if (Thread() == 0) slot[last] = 0;
  out[Thread()] = in[Neighbour()];
}

__global__ void LoadMatrixOutside(const float* in, float* out) {
  struct alignas(16) Rows {
    std::uint16_t values[7][8];
  };
  BERTH_SHARED(Rows, shared);
  std::uint32_t registers[1];
  gpu::LoadMatrix(registers, shared.values[Thread() % 8]);
  out[Thread()] = in[Neighbour()];
}

__global__ void MisalignedCopy(const float* in, float* out) {
  struct alignas(8) Slot {
    float values[kThreads + 2];
  };
  BERTH_SHARED(Slot, slot);
  gpu::CopyAsync<8>(&slot.values[Thread() + 1], in);
  out[Thread()] = in[Neighbour()];
}

__global__ void DivergentBarrier(const float* in, float* out) {
  if (Thread() < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[Thread()] = in[Neighbour()];
}

__global__ void EndBeforeBarrier(const float* in, float* out) {
  out[Thread()] = in[Neighbour()];
  if (Thread() == 40) return;
  __syncthreads();
}

__global__ void LaneMissing(const float* in, float* out) {
  float value = in[Thread()];
  if (Thread() % 32 != 5) value = __shfl_up_sync(gpu::kAllLanes, value, 1);
  out[Thread()] = value;
}

__global__ void ShuffleFromAbsentLane(const float* in, float* out) {
  float value = in[Neighbour()];
  constexpr unsigned kLowerHalf = 0x0000ffffu;
  if (Thread() < 16) value += 0 * __shfl_sync(kLowerHalf, value, 20);
  out[Thread()] = value;
}

__global__ void WrongBarrierCount(const float* in, float* out) {
  gpu::BarrierSync(1, kThreads + 32);
  out[Thread()] = in[Neighbour()];
}

__global__ void UninitialisedShared(const float* in, float* out) {
  BERTH_SHARED(float[kThreads], slot);
  if (Thread() != 7) slot[Thread()] = 0;
  __syncthreads();
  out[Thread()] = in[Neighbour()] + slot[Neighbour()];
}

__global__ void RaceBetweenBlocks(const float* in, float* out) { out[Thread()] = in[Neighbour()]; }

__global__ void MissingFence(const float* in, float* out, unsigned* counter) {
  BERTH_SHARED(bool, last);
  // Each of two blocks writes every other value, and whichever ends last reads all.
  if (Thread() % 2 == static_cast<int>(blockIdx.x)) out[Thread()] = in[Neighbour()];
  __syncthreads();
  if (Thread() == 0) last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (last && out[Thread()] < 0) out[Thread()] = 0;
}

__global__ void TooMuchShared(const float* in, float* out) {
  BERTH_SHARED(float[8000], first);
  BERTH_SHARED(float[8000], second);
  first[Thread()] = in[Neighbour()];
  second[Thread()] = first[Thread()];
  out[Thread()] = second[Thread()];
}

struct ManyFloats {
  float values[1000];
};

__global__ void DynamicBeyondLaunch(const float* in, float* out) {
  BERTH_DYNAMIC_SHARED(ManyFloats, shared);
  shared.values[Thread()] = in[Neighbour()];
  out[Thread()] = shared.values[Thread()];
}

cudaError_t LaunchOne(void (*kernel)(const float*, float*), const float* in, float* out, unsigned blocks = 1,
                      std::size_t dynamic_shared_bytes = 0) {
  return gpu::Launch(kernel, dim3(blocks), dim3(kThreads), dynamic_shared_bytes, nullptr, in, out);
}

}  // namespace

cudaError_t Launch(Bug bug, const float* in, float* out, unsigned* counter) {
  switch (bug) {
    case Bug::kMissingBarrierBeforeRead:
      return LaunchOne(MissingBarrierBeforeRead, in, out);
    case Bug::kMissingBarrierBeforeOverwrite:
      return LaunchOne(MissingBarrierBeforeOverwrite, in, out);
    case Bug::kMissingSyncWarp:
      return LaunchOne(MissingSyncWarp, in, out);
    case Bug::kMissingWaitForCopies:
      return LaunchOne(MissingWaitForCopies, in, out);
    case Bug::kMissingBarrierAfterWait:
      return LaunchOne(MissingBarrierAfterWait, in, out);
    case Bug::kReadPastAllocation:
      return LaunchOne(ReadPastAllocation, in, out);
    case Bug::kWritePastAllocation:
      return LaunchOne(WritePastAllocation, in, out);
    case Bug::kSharedArrayOverrun:
      return LaunchOne(SharedArrayOverrun, in, out);
    case Bug::kLoadMatrixOutside:
      return LaunchOne(LoadMatrixOutside, in, out);
    case Bug::kMisalignedCopy:
      return LaunchOne(MisalignedCopy, in, out);
    case Bug::kDivergentBarrier:
      return LaunchOne(DivergentBarrier, in, out);
    case Bug::kEndBeforeBarrier:
      return LaunchOne(EndBeforeBarrier, in, out);
    case Bug::kLaneMissing:
      return LaunchOne(LaneMissing, in, out);
    case Bug::kShuffleFromAbsentLane:
      return LaunchOne(ShuffleFromAbsentLane, in, out);
    case Bug::kWrongBarrierCount:
      return LaunchOne(WrongBarrierCount, in, out);
    case Bug::kUninitialisedShared:
      return LaunchOne(UninitialisedShared, in, out);
    case Bug::kRaceBetweenBlocks:
      return LaunchOne(RaceBetweenBlocks, in, out, 2);
    case Bug::kMissingFence:
      return gpu::Launch(MissingFence, dim3(2), dim3(kThreads), 0, nullptr, in, out, counter);
    case Bug::kTooMuchShared:
      return LaunchOne(TooMuchShared, in, out);
    case Bug::kDynamicBeyondLaunch:
      return LaunchOne(DynamicBeyondLaunch, in, out, 1, sizeof(float) * kThreads);
  }
  return cudaErrorInvalidValue;
}

}  // namespace berth::planted
