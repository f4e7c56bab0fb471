// Graphs and their capture ("CUDA C++ Programming Guide": "Creating a Graph Using Stream Capture", "Prohibited and
// Unhandled Operations", "Invalidation").
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "emulation/stream.h"

namespace berth::emulation {

struct Node {
  const void* function = nullptr;  // the kernel, if it is one
  std::function<void()> run;
  std::vector<std::size_t> after;  // earlier nodes of the same graph
};

struct Graph {
  std::vector<Node> nodes;
};

// One graph in the making: the streams that belong to it hold a reference.
struct Capture {
  std::shared_ptr<Stream> origin;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;  // that began it
  bool invalid = false;
  Graph graph;
};

// For callers that hold the runtime's lock.

cudaError_t AddNode(Stream& stream, Operation operation);
// The stream waits for an event of a capture: it becomes a part of that capture.
cudaError_t JoinCapture(Stream& stream, const Event& event);

// What is not allowed while streams are captured is refused, and ends the capture:
// a call that CUDA calls unsafe, by the captures' modes,
cudaError_t UnsafeDuringCapture();
// waiting for a stream, which may be captured itself,
cudaError_t WaitDuringCapture(const std::shared_ptr<Capture>& of_stream);
// waiting for the whole device,
cudaError_t SynchronizeDuringCapture();
// and using the legacy stream, which would wait for captured ones.
cudaError_t LegacyDuringCapture();

}  // namespace berth::emulation

struct CUgraph_st : berth::emulation::Graph {};
struct CUgraphExec_st {
  std::shared_ptr<const berth::emulation::Graph> graph;  // shared with launches that have not run yet
};
