// The forward pass of a decoder-only transformer over the tokens of one step, on all threads of a pool.
//
// Every phase computes each output element by one sequence of operations that knows nothing of the other tokens or of
// the number of threads (kernels/cpu/*.h define them), so a sequence's bits are the same alone, batched and chunked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/ops.h"
#include "model/model.h"
#include "runner/cpu/attention_stage.h"
#include "runner/cpu/cpu_backend.h"
#include "runner/cpu/kv_store.h"
#include "runner/cpu/logit_stage.h"
#include "runner/cpu/mapped_memory.h"
#include "runner/cpu/packed_weights.h"
#include "runner/cpu/stage_clock.h"
#include "runner/memory_layout.h"
#include "runner/rope_angles.h"
#include "runner/step_inputs.h"

namespace berth {

class Transformer {
 public:
  // `pool` outlives the transformer. REQUIRES: options as MakeCpuBackend checked them.
  static absl::StatusOr<std::unique_ptr<Transformer>> Create(const Model& model, const CpuBackendOptions& options,
                                                             cpu::CpuLevel level, ThreadPool* pool);

  // Runs the step on the calling thread and the pool's.
  void Run(const StepInputs& inputs, StepResult* result);

 private:
  Transformer(const Model& model, PackedWeights weights, KvStore kv, cpu::CpuLevel level, ThreadPool* pool,
              StageTimes* stage_times);
  absl::Status MapWorkspace(std::int32_t max_step_tokens);
  std::size_t LayOut(std::int32_t max_step_tokens, std::byte* base);

  // What thread `thread` does in a step and in its phases.
  void Forward(int thread);
  void CopyBlocks(int thread);
  void ForwardLayer(std::int32_t layer, int thread);
  void EmbedTokens(int thread);
  void RotateAndStore(std::int32_t layer, int thread);
  void Attend(std::int32_t layer, int thread);
  void PrepareAttentionOutput(const Projection& projection, int thread);
  void Activate(const Projection& projection, int thread);
  void AddResidual(const float* norm, const Projection& next, int thread);
  void AnswerLogitRows(int thread);
  // Normalises a row of the residual stream and prepares it as input row `row` of `count`.
  void NormAndPrepare(const float* norm, const Projection& next, const float* x, const PreparedRows& rows,
                      std::int64_t row, std::int64_t count, int thread);

  // All threads have done the stage before any goes on.
  void End(Stage stage, int thread);

  template <typename Function>
  void ForEachShare(std::int64_t count, int thread, const Function& function) const;

  float* Residual(std::int64_t token) const { return residual_ + token * config_.hidden; }

  const ModelConfig config_;
  ThreadPool* const pool_;
  const cpu::MatMulKernels& matmul_;
  const cpu::OpsKernels& ops_;
  const PackedWeights weights_;
  const KvStore kv_;
  const RopeAngles angles_;
  AttentionStage attention_;
  LogitStage logits_;

  // Buffers for max_step_tokens rows each, and per thread.
  MappedMemory memory_;
  float* residual_ = nullptr;  // [tokens][hidden]
  PreparedRows prepared_;      // room for the widest projection's rows, in two terms
  float* qkv_ = nullptr;       // [2 · tokens][q heads, k heads, v heads]: rows, then second terms
  float* attended_ = nullptr;  // [tokens][heads · head_dim]
  float* gate_up_ = nullptr;   // [tokens][2 · ffn]
  float* update_ = nullptr;    // [tokens][hidden]: what a block adds to the residual stream
  float* cosines_ = nullptr;   // [tokens][rope pairs]
  float* sines_ = nullptr;
  PreparedRows prepared_logits_;   // [2 · LogitStage::kGroupRows]: rows, then second terms
  std::vector<float*> normed_;     // by thread: [hidden]
  std::vector<float*> scratch_;    // by thread: an input row of any projection
  std::vector<float*> activated_;  // by thread: [ffn]

  const StepInputs* inputs_ = nullptr;  // of the step that runs
  StageClock clock_;                    // the first thread's
};

}  // namespace berth
