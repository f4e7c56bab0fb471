// What CUDA C++ gives device code, for a host compiler: kernels/gpu.h includes it, nothing else does. Every thread of a
// block is a fiber. What touches the kernel's memory is inline here, so that it is compiled, and instrumented by a
// sanitizer, together with the kernel.
//
// Only what the kernels use: a new function comes with a case in conformance_test.cc.
#pragma once

#ifdef __CUDACC__
#error "emulation/device.h is for host compilers"
#endif

#include <cuda_runtime_api.h>

// NOLINTBEGIN(clang-diagnostic-reserved-identifier, clang-diagnostic-reserved-macro-identifier): CUDA's own names.

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __shared__
#undef __grid_constant__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ use_BERTH_SHARED_for_shared_memory
#define __grid_constant__
#define __launch_bounds__(...)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

#include "emulation/async_copy.h"
#include "emulation/block.h"
#include "emulation/call_site.h"
#include "emulation/launch.h"
#include "emulation/tensor_core.h"
#include "emulation/warp.h"

// ---- Barriers and fences ("CUDA C++ Programming Guide": Synchronization Functions, Memory Fence Functions).

inline void __syncthreads(berth::emulation::CallSite site = berth::emulation::CallSite::Here()) {
  berth::emulation::SyncThreads(site);
}
inline void __syncwarp(unsigned mask = ~0u, berth::emulation::CallSite site = berth::emulation::CallSite::Here()) {
  berth::emulation::SyncWarp(mask, site);
}
inline void __threadfence() { berth::emulation::Fence(); }

// ---- Warp functions ("Warp Shuffle Functions", "Warp Vote Functions", "Warp Reduce Functions").

namespace berth::emulation {

template <typename T>
T ShuffleValue(unsigned mask, T value, unsigned source, CallSite site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = Shuffle(mask, bits, source, site);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// Of the part of the warp, `width` lanes wide, in which the lane is: the first lane.
inline unsigned PartBegin(int width) { return LaneId() & ~static_cast<unsigned>(width - 1); }

}  // namespace berth::emulation

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              berth::emulation::CallSite site = berth::emulation::CallSite::Here()) {
  const unsigned lane = berth::emulation::PartBegin(width) + static_cast<unsigned>(source & (width - 1));
  return berth::emulation::ShuffleValue(mask, value, lane, site);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                  berth::emulation::CallSite site = berth::emulation::CallSite::Here()) {
  // A lane of a later part would be out of range, one of an earlier part is not.
  const unsigned other = berth::emulation::LaneId() ^ static_cast<unsigned>(bits);
  const bool in_range = other < berth::emulation::PartBegin(width) + static_cast<unsigned>(width);
  return berth::emulation::ShuffleValue(mask, value, in_range ? other : berth::emulation::LaneId(), site);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 berth::emulation::CallSite site = berth::emulation::CallSite::Here()) {
  const unsigned lane = berth::emulation::LaneId();
  const bool in_range = lane - berth::emulation::PartBegin(width) >= delta;
  return berth::emulation::ShuffleValue(mask, value, in_range ? lane - delta : lane, site);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   berth::emulation::CallSite site = berth::emulation::CallSite::Here()) {
  const unsigned lane = berth::emulation::LaneId();
  const bool in_range = lane - berth::emulation::PartBegin(width) + delta < static_cast<unsigned>(width);
  return berth::emulation::ShuffleValue(mask, value, in_range ? lane + delta : lane, site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              berth::emulation::CallSite site = berth::emulation::CallSite::Here()) {
  return berth::emulation::Ballot(mask, predicate != 0, site);
}
inline int __any_sync(unsigned mask, int predicate,
                      berth::emulation::CallSite site = berth::emulation::CallSite::Here()) {
  return berth::emulation::Ballot(mask, predicate != 0, site) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      berth::emulation::CallSite site = berth::emulation::CallSite::Here()) {
  return berth::emulation::Ballot(mask, predicate == 0, site) == 0 ? 1 : 0;
}

// T: int or unsigned.
template <typename T>
T __reduce_add_sync(unsigned mask, T value, berth::emulation::CallSite site = berth::emulation::CallSite::Here()) {
  return berth::emulation::Reduce(mask, value, berth::emulation::Reduction::kAdd, site);
}
template <typename T>
T __reduce_min_sync(unsigned mask, T value, berth::emulation::CallSite site = berth::emulation::CallSite::Here()) {
  return berth::emulation::Reduce(mask, value, berth::emulation::Reduction::kMin, site);
}
template <typename T>
T __reduce_max_sync(unsigned mask, T value, berth::emulation::CallSite site = berth::emulation::CallSite::Here()) {
  return berth::emulation::Reduce(mask, value, berth::emulation::Reduction::kMax, site);
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value,
                                  berth::emulation::CallSite site = berth::emulation::CallSite::Here()) {
  return berth::emulation::Reduce(mask, value, berth::emulation::Reduction::kAnd, site);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value,
                                 berth::emulation::CallSite site = berth::emulation::CallSite::Here()) {
  return berth::emulation::Reduce(mask, value, berth::emulation::Reduction::kOr, site);
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value,
                                  berth::emulation::CallSite site = berth::emulation::CallSite::Here()) {
  return berth::emulation::Reduce(mask, value, berth::emulation::Reduction::kXor, site);
}

// ---- Atomic functions: relaxed, as CUDA's are. What else they should order takes a fence on both sides.

namespace berth::emulation {

template <typename T, typename Function>
T AtomicUpdate(T* address, Function next) {
  T seen;
  __atomic_load(address, &seen, __ATOMIC_RELAXED);
  for (;;) {
    T wanted = next(seen);
    if (__atomic_compare_exchange(address, &seen, &wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return seen;
  }
}

}  // namespace berth::emulation

template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return berth::emulation::AtomicUpdate(address, [value](T old) { return static_cast<T>(old + value); });
}
template <typename T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return berth::emulation::AtomicUpdate(address, [value](T old) { return std::min(old, value); });
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return berth::emulation::AtomicUpdate(address, [value](T old) { return std::max(old, value); });
}
template <typename T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return berth::emulation::AtomicUpdate(address, [value](T) { return value; });
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return berth::emulation::AtomicUpdate(address, [=](T old) { return old == expected ? value : old; });
}
// Counts from 0 to `last` and begins again.
inline unsigned atomicInc(unsigned* address, unsigned last) {
  return berth::emulation::AtomicUpdate(address, [last](unsigned old) { return old >= last ? 0u : old + 1; });
}

// For loops that wait for another thread of the block: on a CPU that one must be let run.
inline void __nanosleep(unsigned) { berth::emulation::Yield(); }

// ---- Arithmetic ("Intrinsic Functions", "Type Casting Intrinsic Functions").

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }

template <typename T>
T __ldg(const T* address) {
  return *address;
}

using std::max;
using std::min;

// NOLINTEND(clang-diagnostic-reserved-identifier, clang-diagnostic-reserved-macro-identifier)

namespace berth::emulation {

// Subnormal arguments and results are zero, as in ex2.approx.ftz.
inline float Exp2(float x) {
  const float result = std::exp2(x);
  return result < 0x1p-126f ? 0.0f : result;
}

template <typename... Parameters, typename... Arguments>
cudaError_t LaunchKernel(void (*kernel)(Parameters...), const void* function, dim3 grid, dim3 block,
                         std::size_t dynamic_shared_bytes, cudaStream_t stream, Arguments&&... arguments) {
  std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
  return EnqueueKernel(function, grid, block, dynamic_shared_bytes, stream,
                       [kernel, values] { std::apply(kernel, values); });
}

}  // namespace berth::emulation
