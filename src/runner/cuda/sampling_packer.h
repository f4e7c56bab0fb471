// The rows of logits of a step as the sampling kernels want them, in groups whose logits and ids fit the device's
// buffers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/params/sampling.h"
#include "runner/cuda/cuda_shape.h"
#include "runner/cuda/step_packer.h"
#include "runner/step_inputs.h"

namespace berth {

// Rows that are computed and answered together.
struct LogitGroup {
  std::int32_t first_row = 0;
  std::int32_t rows = 0;
  // Its part of ids() and biases(). The rows name places from ids_begin on.
  std::int64_t ids_begin = 0;
  std::int32_t num_ids = 0;
  std::int32_t num_biases = 0;  // the places up to the last bias
};

// Keeps its memory between steps.
class SamplingPacker {
 public:
  explicit SamplingPacker(const CudaShape& shape) : shape_(shape) {}

  // Fills `rows`, [counts.logit_rows]; those beyond the step's own fill up a batch and draw what nobody asked for.
  void Pack(const StepInputs& inputs, const StepCounts& counts, const std::int32_t* logit_tokens,
            cuda::SamplingRow* rows);

  std::span<const LogitGroup> groups() const { return groups_; }
  std::span<const std::int32_t> ids() const { return ids_; }
  std::span<const float> biases() const { return biases_; }  // at the places of ids; as long
  // Of all rows; each begins where the one before ends.
  std::int32_t top_entries() const { return top_entries_; }

 private:
  cuda::SamplingRow RowOf(const LogitRow& row, std::int32_t logit_token, bool carried);
  // Ids that the row would add.
  static std::int64_t IdsOf(const LogitRow& row);
  cuda::SamplingIds Add(std::span<const TokenId> ids);

  const CudaShape shape_;
  std::vector<LogitGroup> groups_;
  std::vector<std::int32_t> ids_;
  std::vector<float> biases_;
  std::int32_t top_entries_ = 0;
};

}  // namespace berth
