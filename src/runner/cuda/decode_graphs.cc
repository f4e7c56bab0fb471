#include "runner/cuda/decode_graphs.h"

#include <algorithm>
#include <bit>

namespace berth {
namespace {

// The next power of two, or three quarters of it where that is enough.
std::int32_t RoundedRows(std::int32_t rows) {
  const auto power = static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(rows)));
  return power >= 4 && rows <= power / 4 * 3 ? power / 4 * 3 : power;
}

absl::StatusOr<CudaGraph> Capture(cudaStream_t stream, const std::function<absl::Status()>& enqueue) {
  // Of this thread only: another one may wait for the step before.
  BERTH_CUDA_CALL(cudaStreamBeginCapture, stream, cudaStreamCaptureModeThreadLocal);
  absl::Status status = enqueue();
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(stream, &graph);
  CudaGraph owned(graph);
  if (!status.ok()) return status;
  if (error != cudaSuccess) return CudaError("cudaStreamEndCapture", error);
  return owned;
}

}  // namespace

StepCounts DecodeGraphs::SizeFor(const StepCounts& counts) const {
  StepCounts size = counts;
  size.rows = std::min(RoundedRows(counts.rows), shape_.max_rows);
  size.tokens = size.rows;
  size.logit_rows = size.rows;
  size.chunks =
      std::min(static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(counts.chunks))), shape_.max_chunks);
  return size;
}

absl::StatusOr<cudaGraphExec_t> DecodeGraphs::Get(const StepCounts& size, cudaStream_t stream,
                                                  const std::function<absl::Status()>& enqueue) {
  const std::pair key{size.rows, size.chunks};
  const auto found = graphs_.find(key);
  if (found != graphs_.end()) return found->second.get();
  const absl::StatusOr<CudaGraph> graph = Capture(stream, enqueue);
  if (!graph.ok()) return graph.status();
  cudaGraphExec_t executable = nullptr;
  BERTH_CUDA_CALL(cudaGraphInstantiate, &executable, graph->get(), 0);
  graphs_.emplace(key, CudaGraphExec(executable));
  return executable;
}

}  // namespace berth
