#include "emulation/conformance_kernels.h"

#include "kernels/gpu.h"

namespace berth::conformance {
namespace {

constexpr unsigned kAllLanes = gpu::kAllLanes;

__global__ void Shuffles(const int* values, int* results) {
  const int lane = static_cast<int>(threadIdx.x);
  const int value = values[lane];
  int* own = results + lane * kShuffles;
  own[0] = __shfl_sync(kAllLanes, value, 5, 8);
  own[1] = __shfl_xor_sync(kAllLanes, value, 3);
  own[2] = __shfl_up_sync(kAllLanes, value, 2, 16);
  own[3] = __shfl_down_sync(kAllLanes, value, 2, 16);
  own[4] = static_cast<int>(__shfl_xor_sync(kAllLanes, 1.5 * value, 16) * 2);
}

__global__ void LaneIds(int* results) { results[threadIdx.x] = gpu::LaneId(); }

__global__ void Votes(const int* values, int threshold, unsigned* results) {
  const unsigned lane = threadIdx.x;
  if (lane % 2 == 0) return;
  constexpr unsigned kOddLanes = 0xaaaaaaaau;
  const int above = values[lane] > threshold ? 1 : 0;
  results[lane * kVotes] = __ballot_sync(kOddLanes, above);
  results[lane * kVotes + 1] = static_cast<unsigned>(__any_sync(kOddLanes, above) != 0);
  results[lane * kVotes + 2] = static_cast<unsigned>(__all_sync(kOddLanes, above) != 0);
}

__global__ void Reductions(const int* values, unsigned* results) {
  const unsigned lane = threadIdx.x;
  const int value = values[lane];
  const auto bits = static_cast<unsigned>(value);
  unsigned* own = results + lane * kReductions;
  own[0] = static_cast<unsigned>(__reduce_add_sync(kAllLanes, value));
  own[1] = static_cast<unsigned>(__reduce_min_sync(kAllLanes, value));
  own[2] = static_cast<unsigned>(__reduce_max_sync(kAllLanes, value));
  own[3] = __reduce_add_sync(kAllLanes, bits);
  own[4] = __reduce_min_sync(kAllLanes, bits);
  own[5] = __reduce_max_sync(kAllLanes, bits);
  own[6] = __reduce_and_sync(kAllLanes, bits);
  own[7] = __reduce_or_sync(kAllLanes, bits);
  own[8] = __reduce_xor_sync(kAllLanes, bits);
}

__device__ void Multiply(MmaType type, float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  if (type == MmaType::kBf16) {
    gpu::MmaBf16(d, a, b);
  } else {
    gpu::MmaF16(d, a, b);
  }
}

__device__ void Multiply(MmaType, int (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  gpu::MmaS8(d, a, b);
}

// The fragments as gpu.h describes them, element by element.
template <typename Element, typename Sum>
__global__ void Mma(MmaType type, const Element* a, const Element* b, const Sum* c, Sum* d) {
  constexpr int kPerRegister = 4 / static_cast<int>(sizeof(Element));
  constexpr int kDepth = 8 * kPerRegister;
  const int group = static_cast<int>(threadIdx.x) / 4;
  const int place = static_cast<int>(threadIdx.x) % 4;
  std::uint32_t a_registers[4] = {};
  std::uint32_t b_registers[2] = {};
  for (int i = 0; i < kPerRegister; ++i) {
    const int shift = 8 * static_cast<int>(sizeof(Element)) * i;
    for (int r = 0; r < 4; ++r) {
      const int row = group + 8 * (r % 2);
      const int column = kPerRegister * (place + 4 * (r / 2)) + i;
      a_registers[r] |= static_cast<std::uint32_t>(a[row * kDepth + column]) << shift;
    }
    for (int r = 0; r < 2; ++r) {
      b_registers[r] |= static_cast<std::uint32_t>(b[(kPerRegister * (place + 4 * r) + i) * 8 + group]) << shift;
    }
  }
  Sum sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = c[(group + 8 * (i / 2)) * 8 + 2 * place + i % 2];
  Multiply(type, sums, a_registers, b_registers);
  for (int i = 0; i < 4; ++i) d[(group + 8 * (i / 2)) * 8 + 2 * place + i % 2] = sums[i];
}

template <int kCount, bool kTransposed>
__global__ void LoadMatrices(const std::uint16_t* rows, std::uint32_t* registers) {
  struct alignas(16) Rows {
    std::uint16_t values[8 * kCount][8];
  };
  BERTH_SHARED(Rows, shared);
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 64 * kCount; i += 32) shared.values[i / 8][i % 8] = rows[i];
  __syncwarp();
  std::uint32_t loaded[kCount];
  // Of lanes beyond the last row the address is not used, but must be one.
  const void* row = shared.values[lane % (8 * kCount)];
  if constexpr (kTransposed) {
    gpu::LoadMatrixTransposed(loaded, row);
  } else {
    gpu::LoadMatrix(loaded, row);
  }
  for (int i = 0; i < kCount; ++i) registers[lane * kCount + i] = loaded[i];
}

template <int kBytes>
__global__ void Copies(const std::uint8_t* source, std::uint8_t* destination) {
  struct alignas(16) Pieces {
    std::uint8_t bytes[32][kBytes];
  };
  BERTH_SHARED(Pieces, shared);
  const int thread = static_cast<int>(threadIdx.x);  // of 16: two pieces each
  for (int group = 0; group < 2; ++group) {
    const int piece = group * 16 + thread;
    gpu::CopyAsync<kBytes>(shared.bytes[piece], source + piece * kBytes, piece % 2 == 0);
    gpu::CommitCopies();
  }
  gpu::WaitCopies<1>();
  for (int i = 0; i < kBytes; ++i) destination[thread * kBytes + i] = shared.bytes[thread][i];
  gpu::WaitCopies<0>();
  const int second = 16 + thread;
  for (int i = 0; i < kBytes; ++i) destination[second * kBytes + i] = shared.bytes[second][i];
}

__global__ void Producers(int rounds, const int* values, int* results) {
  constexpr unsigned kFull = 1;
  constexpr unsigned kEmpty = 2;
  constexpr unsigned kThreads = 128;
  BERTH_SHARED(int[64], slot);
  const int thread = static_cast<int>(threadIdx.x);
  for (int round = 0; round < rounds; ++round) {
    if (thread < 64) {
      if (round > 0) gpu::BarrierSync(kEmpty, kThreads);
      slot[thread] = values[round * 64 + thread];
      gpu::BarrierArrive(kFull, kThreads);
    } else {
      gpu::BarrierSync(kFull, kThreads);
      results[round * 64 + thread - 64] = slot[127 - thread];
      if (round + 1 < rounds) gpu::BarrierArrive(kEmpty, kThreads);
    }
  }
}

__global__ void Atomics(AtomicResults* results) {
  const int number = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(&results->sum, static_cast<float>(number));
  atomicAdd(&results->count, 1u);
  atomicMin(&results->minimum, number);
  atomicMax(&results->maximum, number);
  atomicInc(&results->wrapped, 9u);
  if (number == 77) atomicExch(&results->exchanged, number);
  atomicCAS(&results->swapped, number, number + 1);
}

__global__ void LastBlock(const float* values, float* partial, unsigned* counter, float* sum) {
  BERTH_SHARED(float[64], shared);
  BERTH_SHARED(bool, last);
  const unsigned thread = threadIdx.x;
  shared[thread] = values[blockIdx.x * 64 + thread];
  for (unsigned half = 32; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) shared[thread] += shared[thread + half];
  }
  if (thread == 0) {
    partial[blockIdx.x] = shared[0];
    __threadfence();
    last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last || thread != 0) return;
  __threadfence();
  float total = 0;
  for (unsigned block = 0; block < gridDim.x; ++block) total += partial[block];
  *sum = total;
}

template <int kSize>
struct ReverseShared {
  float values[kSize];
};

template <int kSize>
__global__ void Reverse(int size, const float* values, float* results) {
  BERTH_DYNAMIC_SHARED(ReverseShared<kSize>, shared);
  for (int i = static_cast<int>(threadIdx.x); i < size; i += static_cast<int>(blockDim.x)) shared.values[i] = values[i];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < size; i += static_cast<int>(blockDim.x)) {
    results[i] = shared.values[size - 1 - i];
  }
}

__global__ void Spin(int* result) {
  BERTH_SHARED(int, flag);
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x == 7) atomicExch(&flag, 42);
  if (threadIdx.x == 3) {
    int seen = 0;
    while ((seen = atomicAdd(&flag, 0)) == 0) __nanosleep(20);
    *result = seen;
  }
  __syncthreads();
}

__global__ void Functions(int size, const float* values, float* results) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= size) return;
  const float x = __ldg(values + i);
  float* own = results + i * kFunctions;
  own[0] = gpu::Exp2(x);
  own[1] = __expf(x);
  own[2] = __fdividef(x, 3.0f);
  own[3] = rsqrtf(x);
  const float2 pair = gpu::UnpackBf16(gpu::PackBf16(x, -x));
  own[4] = pair.x;
  own[5] = pair.y;
  own[6] = __fmul_rn(x, x) - x;
  own[7] = __uint_as_float(gpu::MaskOr(__float_as_uint(x), 0x007fffff, 0x3f800000));
}

template <bool kTransposed>
cudaError_t LaunchLoad(int count, const std::uint16_t* rows, std::uint32_t* registers) {
  switch (count) {
    case 1:
      return gpu::Launch(LoadMatrices<1, kTransposed>, dim3(1), dim3(32), 0, nullptr, rows, registers);
    case 2:
      return gpu::Launch(LoadMatrices<2, kTransposed>, dim3(1), dim3(32), 0, nullptr, rows, registers);
    case 4:
      return gpu::Launch(LoadMatrices<4, kTransposed>, dim3(1), dim3(32), 0, nullptr, rows, registers);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t LaunchShuffles(const int* values, int* results) {
  return gpu::Launch(Shuffles, dim3(1), dim3(32), 0, nullptr, values, results);
}

cudaError_t LaunchLaneIds(unsigned threads, int* results) {
  return gpu::Launch(LaneIds, dim3(1), dim3(threads), 0, nullptr, results);
}

cudaError_t LaunchVotes(const int* values, int threshold, unsigned* results) {
  return gpu::Launch(Votes, dim3(1), dim3(32), 0, nullptr, values, threshold, results);
}

cudaError_t LaunchReductions(const int* values, unsigned* results) {
  return gpu::Launch(Reductions, dim3(1), dim3(32), 0, nullptr, values, results);
}

cudaError_t LaunchMma(MmaType type, const void* a, const void* b, const void* c, void* d) {
  if (type == MmaType::kS8) {
    return gpu::Launch(Mma<std::uint8_t, int>, dim3(1), dim3(32), 0, nullptr, type, static_cast<const std::uint8_t*>(a),
                       static_cast<const std::uint8_t*>(b), static_cast<const int*>(c), static_cast<int*>(d));
  }
  return gpu::Launch(Mma<std::uint16_t, float>, dim3(1), dim3(32), 0, nullptr, type,
                     static_cast<const std::uint16_t*>(a), static_cast<const std::uint16_t*>(b),
                     static_cast<const float*>(c), static_cast<float*>(d));
}

cudaError_t LaunchLoadMatrix(int count, bool transposed, const std::uint16_t* rows, std::uint32_t* registers) {
  return transposed ? LaunchLoad<true>(count, rows, registers) : LaunchLoad<false>(count, rows, registers);
}

cudaError_t LaunchCopies(int bytes, const std::uint8_t* source, std::uint8_t* destination) {
  const dim3 threads(16);
  switch (bytes) {
    case 4:
      return gpu::Launch(Copies<4>, dim3(1), threads, 0, nullptr, source, destination);
    case 8:
      return gpu::Launch(Copies<8>, dim3(1), threads, 0, nullptr, source, destination);
    case 16:
      return gpu::Launch(Copies<16>, dim3(1), threads, 0, nullptr, source, destination);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t LaunchProducers(int rounds, const int* values, int* results) {
  return gpu::Launch(Producers, dim3(1), dim3(128), 0, nullptr, rounds, values, results);
}

cudaError_t LaunchAtomics(AtomicResults* results) {
  return gpu::Launch(Atomics, dim3(4), dim3(64), 0, nullptr, results);
}

cudaError_t LaunchLastBlock(int blocks, const float* values, float* partial, unsigned* counter, float* sum) {
  return gpu::Launch(LastBlock, dim3(static_cast<unsigned>(blocks)), dim3(64), 0, nullptr, values, partial, counter,
                     sum);
}

cudaError_t LaunchReverse(int size, const float* values, float* results) {
  return gpu::Launch(Reverse<kMaxReversed>, dim3(1), dim3(256), sizeof(ReverseShared<kMaxReversed>), nullptr, size,
                     values, results);
}

cudaError_t LaunchSpin(int* result) { return gpu::Launch(Spin, dim3(1), dim3(8), 0, nullptr, result); }

cudaError_t LaunchFunctions(int size, const float* values, float* results) {
  constexpr unsigned kThreads = 64;
  const dim3 blocks((static_cast<unsigned>(size) + kThreads - 1) / kThreads);
  return gpu::Launch(Functions, blocks, dim3(kThreads), 0, nullptr, size, values, results);
}

}  // namespace berth::conformance
