// A stand-in for the CUDA runtime with one device, the CPU. It defines the functions that NVIDIA's own
// cuda_runtime_api.h declares, so that the code under test is compiled unchanged and signatures cannot drift.
//
// It does what the API allows and code should not rely on: streams run as late as they may, device memory is filled
// with NaN, the limits of compute capability 9.0 are enforced, a fault in a kernel stays until cudaDeviceReset.
// Functions it does not define are link errors: they are added when something needs them.
//
// Thread-safe: one lock. A kernel runs in whichever thread waits for it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "emulation/fault.h"
#include "emulation/graph.h"
#include "emulation/memory.h"
#include "emulation/stream.h"

namespace berth::emulation {

// Everything the program made. Guarded by the lock that Guarded holds.
struct Context {
  std::map<CUstream_st*, std::shared_ptr<Stream>> streams;
  std::map<CUevent_st*, std::unique_ptr<CUevent_st>> events;
  std::map<CUgraph_st*, std::unique_ptr<CUgraph_st>> graphs;
  std::map<CUgraphExec_st*, std::unique_ptr<CUgraphExec_st>> executables;
  std::shared_ptr<Stream> legacy = std::make_shared<CUstream_st>();
  std::set<std::shared_ptr<Capture>> captures;  // not yet ended
  Memory memory;
  std::map<const void*, std::size_t> dynamic_shared_limits;  // that cudaFuncSetAttribute raised
};

Context& context();

// What the program has not given back: for tests of code that owns such things.
struct LiveObjects {
  std::size_t streams;
  std::size_t events;
  std::size_t graphs;  // and executable ones
  std::size_t device_bytes;
  std::size_t pinned_bytes;

  bool operator==(const LiveObjects&) const = default;
};
LiveObjects CountLiveObjects();

std::recursive_mutex& RuntimeMutex();
// Remembers an error for cudaGetLastError of this thread, and returns it.
cudaError_t Remember(cudaError_t error);

// The nth of this thread's calls from now on (1: the next) does nothing and returns the error; 0 takes that back.
// Returns whether the one planned before is still to come.
bool FailCall(std::uint64_t nth, cudaError_t error = cudaErrorInvalidValue);
// What this call fails with by plan.
cudaError_t TakePlannedFailure();

// Every function of the API is body() under the lock: with a device at fault it is not run, and a fault that it ran
// into is its result.
template <typename Body>
cudaError_t Guarded(Body body) {
  const std::lock_guard lock(RuntimeMutex());
  cudaError_t error = AtFault() ? cudaErrorLaunchFailure : TakePlannedFailure();
  if (error == cudaSuccess) error = body();
  if (AtFault()) error = cudaErrorLaunchFailure;
  return Remember(error);
}

}  // namespace berth::emulation
