// From logits to a step's answers. Logits of a vocabulary are large, so they are computed and answered in groups of
// rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "berth/step.h"
#include "kernels/cpu/ops.h"
#include "runner/memory_layout.h"
#include "runner/sampler.h"

namespace berth {

class LogitStage {
 public:
  // Rows whose logits exist at once.
  static constexpr std::int32_t kGroupRows = 32;

  LogitStage(std::int32_t vocab_size, const cpu::OpsKernels& ops, int threads);

  // Takes the logits' buffer; called again with the real memory.
  void LayOut(MemoryLayout& layout);
  // [2 · kGroupRows][vocab_size]: the logits of a group, and room for as many rows of corrections to them.
  float* logits() const { return logits_; }

  // Before the step's first Answer.
  void Begin(std::size_t rows, StepResult* result);
  // Answers row `index` of the step, whose logits are row `index % kGroupRows`, on thread `thread`.
  void Answer(const LogitRow& row, std::size_t index, int thread);
  // After the last Answer: the top lists, in the order of the rows.
  void Finish();

 private:
  // Each thread's own, on cache lines of its own.
  struct alignas(64) ThreadState {
    Sampler sampler;
    std::vector<float> scratch;
    std::vector<TopLogprob> top;
  };

  const std::int32_t vocab_size_;
  const cpu::OpsKernels& ops_;
  float* logits_ = nullptr;
  std::vector<ThreadState> threads_;
  std::vector<int> answered_by_;  // by row
  StepResult* result_ = nullptr;
};

}  // namespace berth
