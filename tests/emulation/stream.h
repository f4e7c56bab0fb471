// Streams and events. A stream runs nothing until something waits for it: whoever forgets to wait sees what was there
// before.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace berth::emulation {

struct Capture;
struct Stream;

// A point in a stream's work.
struct Marker {
  std::shared_ptr<Stream> stream;
  std::uint64_t number = 0;  // of its operations, from the first
};

struct Operation {
  const void* function = nullptr;  // the kernel, if it is one
  std::function<void()> run;
  std::vector<Marker> after;  // in other streams
};

struct Stream {
  // Ordered with the legacy stream ("CUDA Runtime API", "Stream synchronization behavior").
  bool blocking = true;
  std::deque<Operation> pending;
  std::uint64_t issued = 0;
  std::uint64_t done = 0;
  // While its work is captured: the nodes that the next one depends on.
  std::shared_ptr<Capture> capture;
  std::vector<std::size_t> frontier;
};

struct Event {
  bool timing = true;
  Marker marker;  // no stream: never recorded
  std::shared_ptr<std::int64_t> time_ns = std::make_shared<std::int64_t>(0);
  // Recorded in a captured stream: what it stands for.
  std::shared_ptr<Capture> capture;
  std::vector<std::size_t> frontier;
};

// For callers that hold the runtime's lock. A null handle is the legacy stream.

// Null for a handle that is not alive.
std::shared_ptr<Stream> FindStream(cudaStream_t handle);
// Adds work to the stream, or to the graph that captures it.
cudaError_t Enqueue(cudaStream_t handle, Operation operation);
bool IsCapturing(cudaStream_t handle);
// Runs the stream's work to its end. REQUIRES: the handle is alive.
void FinishStream(cudaStream_t handle);
// Runs all there is.
void FinishAll();

}  // namespace berth::emulation

struct CUstream_st : berth::emulation::Stream {};
struct CUevent_st : berth::emulation::Event {};
