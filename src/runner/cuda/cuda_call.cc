#include "runner/cuda/cuda_call.h"

#include "absl/strings/str_cat.h"
#include "runner/memory_layout.h"

namespace berth {
namespace {

std::string_view WithoutNamespaces(std::string_view function) {
  const std::size_t colon = function.rfind(':');
  return colon == std::string_view::npos ? function : function.substr(colon + 1);
}

absl::Status NoRoom(std::string_view what, std::string_view call, std::size_t bytes, cudaError_t error) {
  const std::string reason(CudaError(call, error).message());
  if (error != cudaErrorMemoryAllocation) return absl::InternalError(absl::StrCat(what, ": ", reason));
  return absl::ResourceExhaustedError(
      absl::StrCat("no room for the ", bytes, " bytes of ", what, ": ", reason));
}

absl::Status TooMuch(std::string_view what) {
  return absl::ResourceExhaustedError(absl::StrCat(what, " would take more bytes than there are addresses"));
}

}  // namespace

absl::Status CudaError(std::string_view call, cudaError_t error) {
  // Who asks the runtime for its last error shall not find this one, which is told here.
  static_cast<void>(cudaGetLastError());
  return absl::InternalError(absl::StrCat(WithoutNamespaces(call), ": ", cudaGetErrorString(error), " (",
                                          static_cast<int>(error), ")"));
}

absl::Status CublasLtError(std::string_view call, cublasStatus_t status) {
  return absl::InternalError(absl::StrCat(call, ": cuBLAS status ", static_cast<int>(status)));
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
  if (bytes == MemoryLayout::kTooMuch) return TooMuch(what);
  CudaBuffer buffer;
  if (bytes == 0) return buffer;
  void* memory = nullptr;
  if (const cudaError_t error = cudaMalloc(&memory, bytes); error != cudaSuccess) {
    return NoRoom(what, "cudaMalloc", bytes, error);
  }
  buffer.memory_ = {static_cast<std::byte*>(memory), Deleter{false}};
  buffer.size_ = bytes;
  return buffer;
}

absl::StatusOr<CudaBuffer> CudaBuffer::Pinned(std::size_t bytes, std::string_view what) {
  if (bytes == MemoryLayout::kTooMuch) return TooMuch(what);
  CudaBuffer buffer;
  if (bytes == 0) return buffer;
  void* memory = nullptr;
  if (const cudaError_t error = cudaHostAlloc(&memory, bytes, cudaHostAllocDefault); error != cudaSuccess) {
    return NoRoom(what, "cudaHostAlloc", bytes, error);
  }
  buffer.memory_ = {static_cast<std::byte*>(memory), Deleter{true}};
  buffer.size_ = bytes;
  return buffer;
}

void CudaBuffer::Deleter::operator()(std::byte* memory) const {
  static_cast<void>(pinned ? cudaFreeHost(memory) : cudaFree(memory));
}

}  // namespace berth
