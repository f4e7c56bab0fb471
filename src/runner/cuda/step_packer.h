// A step as the device wants it: rows that decode first, then prompt chunks; block tables in a rectangle.
#pragma once

#include <cstdint>
#include <vector>

#include "runner/cuda/step_arrays.h"
#include "runner/step_inputs.h"

namespace berth {

// Keeps its memory between steps.
class StepPacker {
 public:
  explicit StepPacker(const CudaShape& shape) : shape_(shape) {}

  // Puts the rows in order and counts. Crashes where the plan has more rows, or rows of logits, than the backend was
  // made for.
  StepCounts Count(const StepInputs& inputs);

  // Fills in all but `sampling`. `counts` are those that Count gave, or have more rows, tokens and rows of logits to
  // fill up a batch: such rows attend to nothing and store nothing.
  void Write(const StepInputs& inputs, const StepCounts& counts, const StepArrays& to) const;

  // Where on the device a token of the plan is. The plan's order within a row is kept.
  std::int32_t DeviceToken(const StepInputs& inputs, std::int32_t row, std::int32_t token_index) const {
    const auto at = static_cast<std::size_t>(row);
    return begins_[at] + token_index - inputs.sequences()[at].token_begin;
  }

  // Only decode rows that each draw once, in order: what a graph of a step can hold.
  static bool OnlyDecodes(const StepInputs& inputs);

 private:
  void WriteTokens(const StepInputs& inputs, const StepArrays& to) const;
  void WriteRows(const StepInputs& inputs, const StepCounts& counts, const StepArrays& to) const;
  void WriteTiles(const StepInputs& inputs, const StepCounts& counts, const StepArrays& to) const;
  void WriteLogitTokens(const StepInputs& inputs, const StepArrays& to) const;
  void FillUp(const StepInputs& inputs, const StepCounts& counts, const StepArrays& to) const;

  const CudaShape shape_;
  std::vector<std::int32_t> order_;   // rows of the plan, in the device's order
  std::vector<std::int32_t> begins_;  // by row of the plan: its first token on the device
};

}  // namespace berth
