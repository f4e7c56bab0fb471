// CUDA graphs of steps that only decode: a launch each, where a forward pass has hundreds. A graph is captured when a
// step of its size is first met, and serves all steps that fit: rows are filled up to a few sizes, and so is the number
// of chunks that the longest row has.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runner/cuda/cuda_call.h"
#include "runner/cuda/cuda_shape.h"
#include "runner/cuda/step_arrays.h"

namespace berth {

class DecodeGraphs {
 public:
  explicit DecodeGraphs(const CudaShape& shape) : shape_(shape) {}

  // The counts of the graph that serves a step of decode rows with one logit row each. Rows: at most a third of them
  // fill up.
  StepCounts SizeFor(const StepCounts& counts) const;

  // The graph of these counts; `enqueue` puts its work on the stream the first time. Each such call must use the same
  // addresses.
  absl::StatusOr<cudaGraphExec_t> Get(const StepCounts& size, cudaStream_t stream,
                                      const std::function<absl::Status()>& enqueue);

 private:
  const CudaShape shape_;
  std::map<std::pair<std::int32_t, std::int32_t>, CudaGraphExec> graphs_;  // by rows and chunks
};

}  // namespace berth
