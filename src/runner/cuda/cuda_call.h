// Errors of CUDA and cuBLASLt as statuses, and what the runtime hands out as owned objects.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace berth {

// Internal: "cudaMemcpyAsync: an illegal memory access was encountered (700)". REQUIRES: it is an error.
absl::Status CudaError(std::string_view call, cudaError_t error);
absl::Status CublasLtError(std::string_view call, cublasStatus_t status);

// Returns from the function with what a call or a step of its own failed with. A call is named without its namespaces.
#define BERTH_CUDA_CALL(function, ...)                                           \
  do {                                                                           \
    if (const cudaError_t error_ = function(__VA_ARGS__); error_ != cudaSuccess) \
      return ::berth::CudaError(#function, error_);                              \
  } while (false)
#define BERTH_TRY(expression)                                               \
  do {                                                                      \
    if (absl::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

struct StreamDeleter {
  void operator()(cudaStream_t stream) const { static_cast<void>(cudaStreamDestroy(stream)); }
};
struct EventDeleter {
  void operator()(cudaEvent_t event) const { static_cast<void>(cudaEventDestroy(event)); }
};
struct GraphDeleter {
  void operator()(cudaGraph_t graph) const { static_cast<void>(cudaGraphDestroy(graph)); }
};
struct GraphExecDeleter {
  void operator()(cudaGraphExec_t graph) const { static_cast<void>(cudaGraphExecDestroy(graph)); }
};
using CudaStream = std::unique_ptr<CUstream_st, StreamDeleter>;
using CudaEvent = std::unique_ptr<CUevent_st, EventDeleter>;
using CudaGraph = std::unique_ptr<CUgraph_st, GraphDeleter>;
using CudaGraphExec = std::unique_ptr<CUgraphExec_st, GraphExecDeleter>;

// Not ordered with the legacy stream.
absl::StatusOr<CudaStream> MakeCudaStream();
absl::StatusOr<CudaEvent> MakeCudaEvent(unsigned flags);

struct MemoryDeleter {
  void operator()(std::byte* memory) const { static_cast<void>(pinned ? cudaFreeHost(memory) : cudaFree(memory)); }
  bool pinned = false;
};

// Memory of the device, at a multiple of 256 bytes, or pinned memory of the host, which the device reaches as well.
class CudaBuffer {
 public:
  // ResourceExhausted that names `what` and the bytes where there is no room. No bytes are no memory.
  static absl::StatusOr<CudaBuffer> OnDevice(std::size_t bytes, std::string_view what);
  static absl::StatusOr<CudaBuffer> Pinned(std::size_t bytes, std::string_view what);

  CudaBuffer() = default;
  std::byte* data() const { return memory_.get(); }
  std::size_t size() const { return size_; }

 private:
  static absl::StatusOr<CudaBuffer> Allocate(std::size_t bytes, std::string_view what, bool pinned);

  std::unique_ptr<std::byte, MemoryDeleter> memory_;
  std::size_t size_ = 0;
};

}  // namespace berth
