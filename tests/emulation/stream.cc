#include "emulation/stream.h"

#include <chrono>
#include <utility>

#include "emulation/runtime.h"

namespace berth::emulation {
namespace {

// Runs the stream until `number` of its operations are done, what those wait for first.
void RunUntil(Stream& stream, std::uint64_t number) {
  while (stream.done < number) {
    const Operation operation = std::move(stream.pending.front());
    stream.pending.pop_front();
    ++stream.done;
    if (AtFault()) continue;
    for (const Marker& marker : operation.after) RunUntil(*marker.stream, marker.number);
    if (!AtFault()) operation.run();
  }
}

// The rest of a stream, as something to wait for.
void AddRest(const std::shared_ptr<Stream>& stream, std::vector<Marker>* markers) {
  if (stream->done < stream->issued) markers->push_back({stream, stream->issued});
}

CUevent_st* FindEvent(cudaEvent_t handle) {
  const auto found = context().events.find(handle);
  return found == context().events.end() ? nullptr : found->second.get();
}

bool Reached(const Event& event) {
  return event.marker.stream == nullptr || event.marker.stream->done >= event.marker.number;
}

// A query makes progress, or a loop of queries would never end.
void RunOne(const Marker& marker) {
  if (marker.stream->done < marker.number) RunUntil(*marker.stream, marker.stream->done + 1);
}

cudaError_t Record(Event& event, cudaStream_t handle) {
  const std::shared_ptr<Stream> stream = FindStream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream->capture != nullptr) {
    event.capture = stream->capture;
    event.frontier = stream->frontier;
    return stream->capture->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
  }
  event.capture = nullptr;
  event.time_ns = std::make_shared<std::int64_t>(0);
  const cudaError_t error =
      Enqueue(handle, {nullptr,
                       [time = event.time_ns] {
                         *time = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
                       },
                       {}});
  event.marker = {stream, stream->issued};
  return error;
}

cudaError_t WaitFor(cudaStream_t handle, const Event& event) {
  const std::shared_ptr<Stream> stream = FindStream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (event.capture != nullptr) return JoinCapture(*stream, event);
  if (stream->capture != nullptr && event.marker.stream != nullptr) {
    // Work outside of the capture cannot be a dependency of a node.
    stream->capture->invalid = true;
    return cudaErrorStreamCaptureIsolation;
  }
  if (event.marker.stream == nullptr) return cudaSuccess;
  return Enqueue(handle, {nullptr, [] {}, {event.marker}});
}

cudaError_t Elapsed(float* milliseconds, const Event* begin, const Event* end) {
  if (begin == nullptr || end == nullptr || !begin->timing || !end->timing || begin->marker.stream == nullptr ||
      end->marker.stream == nullptr) {
    return cudaErrorInvalidResourceHandle;
  }
  if (!Reached(*begin) || !Reached(*end)) return cudaErrorNotReady;
  *milliseconds = static_cast<float>(*end->time_ns - *begin->time_ns) * 1e-6f;
  return cudaSuccess;
}

}  // namespace

std::shared_ptr<Stream> FindStream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return context().legacy;
  const auto found = context().streams.find(handle);
  return found == context().streams.end() ? nullptr : found->second;
}

cudaError_t Enqueue(cudaStream_t handle, Operation operation) {
  const std::shared_ptr<Stream> stream = FindStream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream->capture != nullptr) return AddNode(*stream, std::move(operation));
  const bool is_legacy = stream == context().legacy;
  if (is_legacy) {
    if (const cudaError_t error = LegacyDuringCapture(); error != cudaSuccess) return error;
    for (const auto& [other_handle, other] : context().streams) {
      if (other->blocking) AddRest(other, &operation.after);
    }
  } else if (stream->blocking) {
    AddRest(context().legacy, &operation.after);
  }
  stream->pending.push_back(std::move(operation));
  ++stream->issued;
  return cudaSuccess;
}

bool IsCapturing(cudaStream_t handle) {
  const std::shared_ptr<Stream> stream = FindStream(handle);
  return stream != nullptr && stream->capture != nullptr;
}

void FinishStream(cudaStream_t handle) {
  const std::shared_ptr<Stream> stream = FindStream(handle);
  RunUntil(*stream, stream->issued);
  context().memory.CheckGuards();
}

void FinishAll() {
  for (const auto& [handle, stream] : context().streams) RunUntil(*stream, stream->issued);
  FinishStream(cudaStreamLegacy);
}

}  // namespace berth::emulation

using berth::emulation::context;
using berth::emulation::FindEvent;
using berth::emulation::FindStream;
using berth::emulation::Guarded;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
  return Guarded([&] {
    auto stream = std::make_shared<CUstream_st>();
    stream->blocking = (flags & cudaStreamNonBlocking) == 0;
    *handle = stream.get();
    context().streams[*handle] = std::move(stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreate(cudaStream_t* handle) { return cudaStreamCreateWithFlags(handle, cudaStreamDefault); }

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned flags, int) {
  return cudaStreamCreateWithFlags(handle, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return Guarded([&] {
    const auto found = context().streams.find(handle);
    if (found == context().streams.end()) return cudaErrorInvalidResourceHandle;
    if (found->second->capture != nullptr) found->second->capture->invalid = true;
    // The API would let it end later; nobody can tell.
    berth::emulation::RunUntil(*found->second, found->second->issued);
    context().streams.erase(found);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return Guarded([&]() -> cudaError_t {
    const auto stream = FindStream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = berth::emulation::WaitDuringCapture(stream->capture); error != cudaSuccess) {
      return error;
    }
    berth::emulation::FinishStream(handle);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return Guarded([&]() -> cudaError_t {
    const auto stream = FindStream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = berth::emulation::WaitDuringCapture(stream->capture); error != cudaSuccess) {
      return error;
    }
    if (stream->done == stream->issued) return cudaSuccess;
    berth::emulation::RunOne({stream, stream->issued});
    return cudaErrorNotReady;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
  return Guarded([&] {
    auto event = std::make_unique<CUevent_st>();
    event->timing = (flags & cudaEventDisableTiming) == 0;
    *handle = event.get();
    context().events[*handle] = std::move(event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* handle) { return cudaEventCreateWithFlags(handle, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return Guarded([&] { return context().events.erase(handle) == 1 ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  return Guarded([&]() -> cudaError_t {
    CUevent_st* event = FindEvent(handle);
    return event == nullptr ? cudaErrorInvalidResourceHandle : berth::emulation::Record(*event, stream);
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned) {
  return Guarded([&]() -> cudaError_t {
    const CUevent_st* event = FindEvent(handle);
    return event == nullptr ? cudaErrorInvalidResourceHandle : berth::emulation::WaitFor(stream, *event);
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return Guarded([&]() -> cudaError_t {
    const CUevent_st* event = FindEvent(handle);
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    if (event->capture != nullptr) return cudaErrorCapturedEvent;
    if (const cudaError_t error = berth::emulation::UnsafeDuringCapture(); error != cudaSuccess) return error;
    if (event->marker.stream != nullptr) berth::emulation::RunUntil(*event->marker.stream, event->marker.number);
    context().memory.CheckGuards();
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return Guarded([&]() -> cudaError_t {
    const CUevent_st* event = FindEvent(handle);
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    if (event->capture != nullptr) return cudaErrorCapturedEvent;
    if (const cudaError_t error = berth::emulation::UnsafeDuringCapture(); error != cudaSuccess) return error;
    if (berth::emulation::Reached(*event)) return cudaSuccess;
    berth::emulation::RunOne(event->marker);
    return cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return Guarded([&] { return berth::emulation::Elapsed(milliseconds, FindEvent(begin), FindEvent(end)); });
}

}  // extern "C"
