// The launches of a forward pass. They read nothing on the host but the step's counts, allocate nothing and wait for
// nothing, so that a graph can hold them.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "runner/cuda/cuda_shape.h"
#include "runner/cuda/cuda_weights.h"
#include "runner/cuda/kv_pool.h"
#include "runner/cuda/products.h"
#include "runner/cuda/sampling_packer.h"
#include "runner/cuda/step_arrays.h"
#include "runner/cuda/workspace.h"

namespace berth {

class Forward {
 public:
  Forward(const CudaShape& shape, CudaWeights weights, Products products, const CudaWorkspace& workspace,
          const CudaKvPool* kv)
      : shape_(shape), weights_(std::move(weights)), products_(std::move(products)), workspace_(workspace), kv_(kv) {}

  // Chooses the algorithms of all products that steps can need.
  absl::Status Prepare();

  // Enqueues the step's rows through all layers; `arrays` are on the device.
  absl::Status Compute(const StepCounts& counts, const StepArrays& arrays, cudaStream_t stream);
  // Then, for each group of its logit rows in order, the logits and what is drawn from them. The group's ids and biases
  // are in the workspace by then.
  absl::Status Answer(const StepCounts& counts, const StepArrays& arrays, const LogitGroup& group, cudaStream_t stream);

 private:
  absl::Status Layer(std::int32_t index, const StepCounts& counts, const StepArrays& arrays, cudaStream_t stream);
  absl::Status Attend(const cuda::KvCache& cache, const StepCounts& counts, const StepArrays& arrays,
                      cudaStream_t stream);
  absl::Status Decode(const cuda::KvCache& cache, const StepCounts& counts, const StepArrays& arrays,
                      cudaStream_t stream);
  absl::Status Prefill(const cuda::KvCache& cache, const StepCounts& counts, const StepArrays& arrays,
                       cudaStream_t stream);
  absl::Status PlainAttention(const cuda::KvCache& cache, const StepCounts& counts, const StepArrays& arrays,
                              cudaStream_t stream);
  // normed = norm(update + residual), and the sum is the new residual; without an update norm(residual).
  absl::Status Norm(const std::uint16_t* update, const std::uint16_t* weight, std::int32_t tokens, cudaStream_t stream);
  float AttentionScale() const;

  const CudaShape shape_;
  const CudaWeights weights_;
  Products products_;
  const CudaWorkspace workspace_;
  const CudaKvPool* const kv_;
};

}  // namespace berth
