#include "emulation/runtime.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "emulation/block.h"
#include "emulation/launch.h"
#include "emulation/settings.h"

namespace berth::emulation {
namespace {

// Compute capability 9.0: "CUDA C++ Programming Guide", "Technical Specifications per Compute Capability". Few
// multiprocessors, so that what is planned by their number is still small.
constexpr int kMultiprocessors = 4;
constexpr int kMaxThreadsPerMultiprocessor = 2048;
constexpr int kMaxBlocksPerMultiprocessor = 32;
constexpr std::size_t kSharedBytesPerMultiprocessor = 228 * 1024;
constexpr std::size_t kReservedSharedBytesPerBlock = 1024;
constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kMaxBlockZ = 64;
constexpr unsigned kMaxGridX = 0x7fffffff;
constexpr unsigned kMaxGridYZ = 65535;

thread_local cudaError_t last_error = cudaSuccess;

struct PlannedFailure {
  std::uint64_t calls_left = 0;  // 0: none
  cudaError_t error = cudaSuccess;
};
thread_local PlannedFailure planned_failure;

bool Within(dim3 value, unsigned x, unsigned y, unsigned z) {
  return value.x >= 1 && value.y >= 1 && value.z >= 1 && value.x <= x && value.y <= y && value.z <= z;
}

std::size_t DynamicSharedLimit(const void* function) {
  const auto raised = context().dynamic_shared_limits.find(function);
  return raised == context().dynamic_shared_limits.end() ? kDefaultSharedBytes : raised->second;
}

const char* ErrorName(cudaError_t error) {
#define BERTH_ERROR_NAME(name) \
  case name:                   \
    return #name
  switch (error) {
    BERTH_ERROR_NAME(cudaSuccess);
    BERTH_ERROR_NAME(cudaErrorInvalidValue);
    BERTH_ERROR_NAME(cudaErrorMemoryAllocation);
    BERTH_ERROR_NAME(cudaErrorInvalidConfiguration);
    BERTH_ERROR_NAME(cudaErrorInvalidMemcpyDirection);
    BERTH_ERROR_NAME(cudaErrorInvalidDevice);
    BERTH_ERROR_NAME(cudaErrorInvalidResourceHandle);
    BERTH_ERROR_NAME(cudaErrorIllegalState);
    BERTH_ERROR_NAME(cudaErrorNotReady);
    BERTH_ERROR_NAME(cudaErrorLaunchFailure);
    BERTH_ERROR_NAME(cudaErrorStreamCaptureUnsupported);
    BERTH_ERROR_NAME(cudaErrorStreamCaptureInvalidated);
    BERTH_ERROR_NAME(cudaErrorStreamCaptureUnmatched);
    BERTH_ERROR_NAME(cudaErrorStreamCaptureUnjoined);
    BERTH_ERROR_NAME(cudaErrorStreamCaptureIsolation);
    BERTH_ERROR_NAME(cudaErrorStreamCaptureImplicit);
    BERTH_ERROR_NAME(cudaErrorStreamCaptureMerge);
    BERTH_ERROR_NAME(cudaErrorCapturedEvent);
    BERTH_ERROR_NAME(cudaErrorStreamCaptureWrongThread);
    BERTH_ERROR_NAME(cudaErrorGraphExecUpdateFailure);
    default:
      return "unrecognized error code";
  }
#undef BERTH_ERROR_NAME
}

}  // namespace

Context& context() {
  static Context instance;
  return instance;
}

std::recursive_mutex& RuntimeMutex() {
  static std::recursive_mutex instance;
  return instance;
}

cudaError_t Remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

bool FailCall(std::uint64_t nth, cudaError_t error) {
  return std::exchange(planned_failure, {nth, error}).calls_left > 0;
}

cudaError_t TakePlannedFailure() {
  if (planned_failure.calls_left == 0 || --planned_failure.calls_left > 0) return cudaSuccess;
  return planned_failure.error;
}

LiveObjects CountLiveObjects() {
  const std::lock_guard lock(RuntimeMutex());
  const Context& all = context();
  return {all.streams.size(), all.events.size(), all.graphs.size() + all.executables.size(), all.memory.device_bytes(),
          all.memory.pinned_bytes()};
}

cudaError_t EnqueueKernel(const void* function, dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
                          cudaStream_t stream, std::function<void()> body) {
  return Guarded([&]() -> cudaError_t {
    if (!Within(grid, kMaxGridX, kMaxGridYZ, kMaxGridYZ) || !Within(block, kMaxThreads, kMaxThreads, kMaxBlockZ) ||
        block.x * block.y * block.z > kMaxThreads) {
      return cudaErrorInvalidConfiguration;
    }
    const std::size_t limit = DynamicSharedLimit(function);
    if (dynamic_shared_bytes > limit) return cudaErrorInvalidValue;
    const LaunchShape shape{grid, block, dynamic_shared_bytes, limit > kDefaultSharedBytes};
    return Enqueue(stream, {function, [shape, body = std::move(body)] { RunGrid(shape, body); }, {}});
  });
}

}  // namespace berth::emulation

using berth::emulation::context;
using berth::emulation::Guarded;

extern "C" {

cudaError_t cudaGetLastError() {
  if (berth::emulation::AtFault()) return cudaErrorLaunchFailure;
  return std::exchange(berth::emulation::last_error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
  return berth::emulation::AtFault() ? cudaErrorLaunchFailure : berth::emulation::last_error;
}

const char* cudaGetErrorName(cudaError_t error) { return berth::emulation::ErrorName(error); }

const char* cudaGetErrorString(cudaError_t error) { return berth::emulation::ErrorName(error); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return Guarded([&] { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return Guarded([&] {
    if (device != 0) return cudaErrorInvalidDevice;
    *properties = {};
    std::strncpy(properties->name, "emulation of compute capability 9.0", sizeof(properties->name) - 1);
    properties->major = 9;
    properties->minor = 0;
    properties->warpSize = 32;
    properties->totalGlobalMem = berth::emulation::settings().device_memory_bytes;
    properties->multiProcessorCount = berth::emulation::kMultiprocessors;
    properties->maxThreadsPerBlock = berth::emulation::kMaxThreads;
    properties->maxThreadsPerMultiProcessor = berth::emulation::kMaxThreadsPerMultiprocessor;
    properties->sharedMemPerBlock = berth::emulation::kDefaultSharedBytes;
    properties->sharedMemPerBlockOptin = berth::emulation::kOptInSharedBytes;
    properties->sharedMemPerMultiprocessor = berth::emulation::kSharedBytesPerMultiprocessor;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess) return error;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      return cudaSuccess;
    default:
      return berth::emulation::Remember(cudaErrorInvalidValue);
  }
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return Guarded([&] {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        static_cast<std::size_t>(value) > berth::emulation::kOptInSharedBytes) {
      return cudaErrorInvalidValue;
    }
    context().dynamic_shared_limits[function] = static_cast<std::size_t>(value);
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int block_threads,
                                                          std::size_t dynamic_shared_bytes) {
  return Guarded([&] {
    if (block_threads <= 0) return cudaErrorInvalidValue;
    const std::size_t shared_bytes = dynamic_shared_bytes + berth::emulation::kReservedSharedBytesPerBlock;
    *blocks = std::min({berth::emulation::kMaxBlocksPerMultiprocessor,
                        berth::emulation::kMaxThreadsPerMultiprocessor / block_threads,
                        static_cast<int>(berth::emulation::kSharedBytesPerMultiprocessor / shared_bytes)});
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return Guarded([] {
    if (const cudaError_t error = berth::emulation::SynchronizeDuringCapture(); error != cudaSuccess) return error;
    berth::emulation::FinishAll();
    return cudaSuccess;
  });
}

// Ends everything the program made, faults too.
cudaError_t cudaDeviceReset() {
  const std::lock_guard lock(berth::emulation::RuntimeMutex());
  if (!berth::emulation::AtFault()) berth::emulation::FinishAll();
  berth::emulation::Context& all = context();
  for (const auto& [handle, stream] : all.streams) {
    stream->pending.clear();
    stream->capture = nullptr;
  }
  all.captures.clear();
  all.executables.clear();
  all.graphs.clear();
  all.events.clear();
  all.streams.clear();
  all.legacy = std::make_shared<CUstream_st>();
  all.memory.FreeAll();
  all.dynamic_shared_limits.clear();
  berth::emulation::ClearFault();
  berth::emulation::last_error = cudaSuccess;
  return cudaSuccess;
}

}  // extern "C"
