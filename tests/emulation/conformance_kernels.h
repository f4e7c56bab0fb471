// One small kernel for each thing that kernels/gpu.h and emulation/device.h offer, with its launch. Compiled for the
// emulation and by nvcc: both must give what conformance_test.cc expects.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace berth::conformance {

// Each of 32 lanes writes kShuffles values: what it got from lane 5 of its eight, from lane ^ 3, from 2 below and 2
// above within its 16, and its own value's partner in a double.
inline constexpr int kShuffles = 5;
cudaError_t LaunchShuffles(const int* values, int* results);

// Each of so many threads writes its place in its warp.
cudaError_t LaunchLaneIds(unsigned threads, int* results);

// Lanes of an odd number take part. Each writes ballot, any and all of "value > threshold".
inline constexpr int kVotes = 3;
cudaError_t LaunchVotes(const int* values, int threshold, unsigned* results);

// Each of 32 lanes writes the sum, minimum and maximum of the ints, of the same bits as unsigned, then and, or, xor.
inline constexpr int kReductions = 9;
cudaError_t LaunchReductions(const int* values, unsigned* results);

enum class MmaType { kBf16, kF16, kS8 };
// d = a · b + c: a is 16 × depth, b depth × 8, both of the type and row-major; c and d are 16 × 8 of float, or of int
// for bytes. depth: 16, or 32 for bytes.
cudaError_t LaunchMma(MmaType type, const void* a, const void* b, const void* c, void* d);

// 8 · count rows of eight 16-bit values; each of 32 lanes writes its count registers.
cudaError_t LaunchLoadMatrix(int count, bool transposed, const std::uint16_t* rows, std::uint32_t* registers);

// Copies 32 pieces of `bytes` bytes by way of shared memory, in two groups; odd pieces are not valid.
cudaError_t LaunchCopies(int bytes, const std::uint8_t* source, std::uint8_t* destination);

// Two warps hand each of `rounds` values to two others through shared memory and named barriers.
cudaError_t LaunchProducers(int rounds, const int* values, int* results);

// 4 blocks of 64 threads add their numbers 0 to 255 up with each atomic function.
struct AtomicResults {
  float sum;
  unsigned count;
  int minimum;
  int maximum;
  unsigned wrapped;
  int exchanged;
  int swapped;
};
cudaError_t LaunchAtomics(AtomicResults* results);

// The last of the blocks to end sums what all of them wrote: sum of values[0 .. blocks * 64).
cudaError_t LaunchLastBlock(int blocks, const float* values, float* partial, unsigned* counter, float* sum);

// A block's reversal of `size` values through dynamic shared memory: more than 48 KiB for size > 12288.
inline constexpr int kMaxReversed = 16384;
cudaError_t LaunchReverse(int size, const float* values, float* results);

// One of eight threads waits for another, which is in the same block and sleeps.
cudaError_t LaunchSpin(int* result);

// Of each x: 2^x, e^x, x / 3, 1 / √x, the pair (x, -x) packed to bfloat16 and unpacked, and x · x rounded, minus x.
inline constexpr int kFunctions = 8;
cudaError_t LaunchFunctions(int size, const float* values, float* results);

}  // namespace berth::conformance
