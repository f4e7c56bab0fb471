#include "runner/cuda/cuda_call.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "runner/memory_layout.h"

namespace berth {
namespace {

std::string WithoutNamespaces(std::string_view function) {
  const std::size_t colon = function.rfind(':');
  return std::string(colon == std::string_view::npos ? function : function.substr(colon + 1));
}

}  // namespace

absl::Status CudaError(std::string_view call, cudaError_t error) {
  // Who asks the runtime for its last error shall not find this one, which is told here.
  static_cast<void>(cudaGetLastError());
  return absl::InternalError(
      absl::StrCat(WithoutNamespaces(call), ": ", cudaGetErrorString(error), " (", static_cast<int>(error), ")"));
}

absl::Status CublasLtError(std::string_view call, cublasStatus_t status) {
  return absl::InternalError(absl::StrCat(std::string(call), ": cuBLAS status ", static_cast<int>(status)));
}

absl::StatusOr<CudaStream> MakeCudaStream() {
  cudaStream_t stream = nullptr;
  BERTH_CUDA_CALL(cudaStreamCreateWithFlags, &stream, cudaStreamNonBlocking);
  return CudaStream(stream);
}

absl::StatusOr<CudaEvent> MakeCudaEvent(unsigned flags) {
  cudaEvent_t event = nullptr;
  BERTH_CUDA_CALL(cudaEventCreateWithFlags, &event, flags);
  return CudaEvent(event);
}

absl::StatusOr<CudaBuffer> CudaBuffer::OnDevice(std::size_t bytes, std::string_view what) {
  return Allocate(bytes, what, /*pinned=*/false);
}

absl::StatusOr<CudaBuffer> CudaBuffer::Pinned(std::size_t bytes, std::string_view what) {
  return Allocate(bytes, what, /*pinned=*/true);
}

absl::StatusOr<CudaBuffer> CudaBuffer::Allocate(std::size_t bytes, std::string_view what, bool pinned) {
  const std::string name(what);
  if (bytes == MemoryLayout::kTooMuch) {
    return absl::ResourceExhaustedError(absl::StrCat(name, " would take more bytes than there are addresses"));
  }
  CudaBuffer buffer;
  if (bytes == 0) return buffer;
  void* memory = nullptr;
  const cudaError_t error = pinned ? cudaHostAlloc(&memory, bytes, cudaHostAllocDefault) : cudaMalloc(&memory, bytes);
  if (error != cudaSuccess) {
    const absl::Status reason = CudaError(pinned ? "cudaHostAlloc" : "cudaMalloc", error);
    const auto code = error == cudaErrorMemoryAllocation ? absl::StatusCode::kResourceExhausted : reason.code();
    return absl::Status(code, absl::StrCat("no room for the ", bytes, " bytes of ", name, ": ", reason.message()));
  }
  buffer.memory_ = {static_cast<std::byte*>(memory), MemoryDeleter{pinned}};
  buffer.size_ = bytes;
  return buffer;
}

}  // namespace berth
