// A grid's blocks, one after another: their barriers and their shared memory. What device.h needs of it, and the
// runtime.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>

#include "emulation/call_site.h"

// CUDA's built-in variables; the scheduler rewrites them whenever another thread runs.
extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

namespace berth::emulation {

// What a block may declare, and what it may have in all: by default, and where the launch opted in to more (compute
// capability 9.0, CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
inline constexpr std::size_t kDefaultSharedBytes = 48 * 1024;
inline constexpr std::size_t kOptInSharedBytes = 227 * 1024;

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t dynamic_shared_bytes = 0;
  bool shared_opt_in = false;
};

// Runs body() once for each thread of the grid; false if the kernel was given up with a fault.
// REQUIRES: the shape is within the device's limits; no grid runs.
bool RunGrid(const LaunchShape& shape, const std::function<void()>& body);

bool InKernel();

// ---- For the running thread.

// __syncthreads: all threads of the block, at the same place in the source.
void SyncThreads(CallSite site);
// Barrier 1 to 15 for `threads` threads, a multiple of 32. Arrive does not wait.
void BarrierSync(unsigned barrier, unsigned threads, CallSite site);
void BarrierArrive(unsigned barrier, unsigned threads, CallSite site);

// The launch's dynamic shared memory, which must hold `bytes`.
void* DynamicShared(std::size_t bytes, CallSite site);
// A declaration's static shared memory, the same for each thread of a block. key: one address per declaration.
void* StaticShared(const void* key, std::size_t bytes, std::size_t alignment, CallSite site);
// Whether all bytes lie within one piece of this block's shared memory.
bool InShared(const void* address, std::size_t bytes);

// Lets others run: for loops that wait for another thread.
void Yield();

// __threadfence. The emulated memory is in order anyway; in ThreadSanitizer's book what precedes a fence happened
// before what follows a later one, in any thread of the grid, so that relaxed atomics without fences show as races.
void Fence();

// An address to synchronise on by ThreadSanitizer's book, of this block alone. number < kSyncTags.
inline constexpr std::size_t kBarrierTags = 32;
inline constexpr std::size_t kSyncTags = kBarrierTags + 32 * 32 * 2;
void* SyncTag(std::size_t number);

}  // namespace berth::emulation
