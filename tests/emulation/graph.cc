#include "emulation/graph.h"

#include <algorithm>
#include <utility>

#include "emulation/runtime.h"
#include "emulation/settings.h"

namespace berth::emulation {
namespace {

cudaError_t Invalidate(Capture& capture, cudaError_t error) {
  capture.invalid = true;
  return error;
}

template <typename Predicate>
cudaError_t InvalidateWhere(Predicate concerned, cudaError_t error) {
  cudaError_t result = cudaSuccess;
  for (const auto& capture : context().captures) {
    if (concerned(*capture)) result = Invalidate(*capture, error);
  }
  return result;
}

// Every node must come before the end of the stream that the capture began in.
bool Joined(const Capture& capture) {
  std::vector<bool> before(capture.graph.nodes.size(), false);
  std::vector<std::size_t> open = capture.origin->frontier;
  while (!open.empty()) {
    const std::size_t node = open.back();
    open.pop_back();
    if (before[node]) continue;
    before[node] = true;
    const auto& after = capture.graph.nodes[node].after;
    open.insert(open.end(), after.begin(), after.end());
  }
  return std::find(before.begin(), before.end(), false) == before.end();
}

void LeaveCapture(const std::shared_ptr<Capture>& capture) {
  for (const auto& [handle, stream] : context().streams) {
    if (stream->capture != capture) continue;
    stream->capture = nullptr;
    stream->frontier.clear();
  }
  context().captures.erase(capture);
}

// Any order that the dependencies allow: the first or last of the nodes that could run, or any.
void RunGraph(const Graph& graph) {
  Random random(settings().seed);
  std::vector<bool> done(graph.nodes.size(), false);
  for (std::size_t count = 0; count < graph.nodes.size() && !AtFault(); ++count) {
    std::vector<std::size_t> ready;
    for (std::size_t node = 0; node < graph.nodes.size(); ++node) {
      const auto& after = graph.nodes[node].after;
      if (!done[node] && std::all_of(after.begin(), after.end(), [&](std::size_t other) { return done[other]; })) {
        ready.push_back(node);
      }
    }
    const Order order = settings().order;
    const std::size_t index = order == Order::kForward   ? 0
                              : order == Order::kReverse ? ready.size() - 1
                                                         : random.Below(ready.size());
    done[ready[index]] = true;
    graph.nodes[ready[index]].run();
  }
}

cudaError_t BeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const std::shared_ptr<Stream> stream = FindStream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream == context().legacy) return cudaErrorStreamCaptureUnsupported;
  if (stream->capture != nullptr) return cudaErrorIllegalState;
  auto capture = std::make_shared<Capture>();
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  stream->capture = capture;
  context().captures.insert(std::move(capture));
  return cudaSuccess;
}

cudaError_t EndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  *graph = nullptr;
  const std::shared_ptr<Stream> stream = FindStream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return cudaErrorIllegalState;
  if (capture->origin != stream) return Invalidate(*capture, cudaErrorStreamCaptureUnmatched);
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
    return cudaErrorStreamCaptureWrongThread;
  }
  const bool joined = Joined(*capture);
  LeaveCapture(capture);
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (!joined) return cudaErrorStreamCaptureUnjoined;
  auto result = std::make_unique<CUgraph_st>();
  result->nodes = std::move(capture->graph.nodes);
  *graph = result.get();
  context().graphs[*graph] = std::move(result);
  return cudaSuccess;
}

bool SameTopology(const Graph& a, const Graph& b) {
  return std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(), [](const Node& x, const Node& y) {
    return x.after == y.after && (x.function == nullptr) == (y.function == nullptr);
  });
}

}  // namespace

cudaError_t AddNode(Stream& stream, Operation operation) {
  Capture& capture = *stream.capture;
  if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
  capture.graph.nodes.push_back({operation.function, std::move(operation.run), std::exchange(stream.frontier, {})});
  stream.frontier.push_back(capture.graph.nodes.size() - 1);
  return cudaSuccess;
}

cudaError_t JoinCapture(Stream& stream, const Event& event) {
  if (event.capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (&stream == context().legacy.get()) return Invalidate(*event.capture, cudaErrorStreamCaptureImplicit);
  if (!context().captures.contains(event.capture)) return cudaErrorCapturedEvent;
  if (stream.capture == nullptr) {
    stream.capture = event.capture;
  } else if (stream.capture != event.capture) {
    stream.capture->invalid = true;
    return Invalidate(*event.capture, cudaErrorStreamCaptureMerge);
  }
  for (const std::size_t node : event.frontier) {
    if (std::find(stream.frontier.begin(), stream.frontier.end(), node) == stream.frontier.end()) {
      stream.frontier.push_back(node);
    }
  }
  return cudaSuccess;
}

cudaError_t UnsafeDuringCapture() {
  return InvalidateWhere(
      [](const Capture& capture) {
        return capture.mode == cudaStreamCaptureModeGlobal ||
               (capture.mode == cudaStreamCaptureModeThreadLocal && capture.thread == std::this_thread::get_id());
      },
      cudaErrorStreamCaptureUnsupported);
}

cudaError_t WaitDuringCapture(const std::shared_ptr<Capture>& of_stream) {
  if (of_stream != nullptr) return Invalidate(*of_stream, cudaErrorStreamCaptureUnsupported);
  return UnsafeDuringCapture();
}

cudaError_t SynchronizeDuringCapture() {
  return InvalidateWhere([](const Capture&) { return true; }, cudaErrorStreamCaptureUnsupported);
}

cudaError_t LegacyDuringCapture() {
  return InvalidateWhere([](const Capture& capture) { return capture.origin->blocking; },
                         cudaErrorStreamCaptureImplicit);
}

}  // namespace berth::emulation

using berth::emulation::context;
using berth::emulation::FindStream;
using berth::emulation::Guarded;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return Guarded([&] { return berth::emulation::BeginCapture(stream, mode); });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return Guarded([&] { return berth::emulation::EndCapture(stream, graph); });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return Guarded([&]() -> cudaError_t {
    const auto stream = FindStream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone
              : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  return Guarded([&] {
    if (!context().graphs.contains(graph)) return cudaErrorInvalidValue;
    auto result = std::make_unique<CUgraphExec_st>();
    result->graph = std::make_shared<const berth::emulation::Graph>(*graph);
    *executable = result.get();
    context().executables[*executable] = std::move(result);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return Guarded([&]() -> cudaError_t {
    if (!context().executables.contains(executable)) return cudaErrorInvalidValue;
    return berth::emulation::Enqueue(
        stream, {nullptr, [graph = executable->graph] { berth::emulation::RunGraph(*graph); }, {}});
  });
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) {
  return Guarded([&] {
    if (!context().executables.contains(executable) || !context().graphs.contains(graph)) return cudaErrorInvalidValue;
    *info = {};
    if (!berth::emulation::SameTopology(*executable->graph, *graph)) {
      info->result = cudaGraphExecUpdateErrorTopologyChanged;
      return cudaErrorGraphExecUpdateFailure;
    }
    executable->graph = std::make_shared<const berth::emulation::Graph>(*graph);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  return Guarded([&] {
    // Handles of single nodes are not given out: only their number.
    if (!context().graphs.contains(graph) || nodes != nullptr) return cudaErrorInvalidValue;
    *count = graph->nodes.size();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return Guarded([&] { return context().graphs.erase(graph) == 1 ? cudaSuccess : cudaErrorInvalidValue; });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return Guarded([&] { return context().executables.erase(executable) == 1 ? cudaSuccess : cudaErrorInvalidValue; });
}

}  // extern "C"
