// The device's side of the backend: all memory, and the work of a step on the compute stream.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "berth/step.h"
#include "model/model.h"
#include "runner/cuda/cuda_call.h"
#include "runner/cuda/cuda_shape.h"
#include "runner/cuda/decode_graphs.h"
#include "runner/cuda/forward.h"
#include "runner/cuda/kv_copies.h"
#include "runner/cuda/kv_pool.h"
#include "runner/cuda/sampling_packer.h"
#include "runner/cuda/step_packer.h"
#include "runner/step_inputs.h"

namespace berth {

inline constexpr int kStepSlots = 2;  // steps in flight

// What all of the backend's memory on the device takes.
CudaMemoryPlan PlanMemory(const Model& model, const CudaShape& shape);

class StepRunner {
 public:
  // Takes all memory that steps use, copies the weights and runs what steps launch once. The device is the current one
  // of the thread.
  static absl::StatusOr<std::unique_ptr<StepRunner>> Create(const Model& model, const CudaShape& shape,
                                                            const CudaBackendOptions& options);

  // Enqueues the step; `inputs` are not needed afterwards. `slot`: 0 or 1, in turns; the step that had it before is
  // done and its result read. After an error nothing of the step is running any more.
  absl::Status Enqueue(const StepInputs& inputs, std::int64_t step, int slot);

  // Waits for the slot's step; `busy` is how long the device took. From another thread than Enqueue's.
  absl::Status Wait(int slot, Duration* busy) const;
  // The result of a step that was waited for. REQUIRES: Enqueue of this slot is not called meanwhile.
  void Read(int slot, StepResult* result) const;

  // Whether the device still takes work: a kernel that faulted has ended its context.
  bool IsAlive() const;

 private:
  // What a step in flight keeps.
  struct Slot {
    CudaBuffer inputs;
    CudaBuffer ids;      // [max_step_ids]
    CudaBuffer biases;   // as many
    CudaBuffer results;  // drawn, top ids, top log-probabilities, as in the workspace
    CudaEvent begin;
    CudaEvent done;
    std::int64_t step = 0;
    std::vector<std::int32_t> top_counts;  // by logit row
    std::int32_t first_logprob = 0;        // where the log-probabilities begin in `drawn`
  };

  // A step's rows, ready in its slot's pinned memory.
  struct Rows {
    StepCounts counts;
    StepArrays arrays;  // on the device
    std::size_t input_bytes = 0;
    cudaGraphExec_t graph = nullptr;  // null: the kernels are launched one by one
  };

  StepRunner(const CudaShape& shape, bool graphs)
      : shape_(shape), graphs_on_(graphs), packer_(shape), sampling_(shape), graphs_(shape) {}

  absl::Status TakeMemory(const Model& model, const CudaBackendOptions& options);
  absl::Status MakeSlots();
  absl::Status WarmUp();
  absl::Status EnqueueAll(const StepInputs& inputs, Slot* slot, int number);
  absl::Status PrepareRows(const StepInputs& inputs, Slot* slot, Rows* rows);
  void Stage(const StepInputs& inputs, const Slot& slot, Rows* rows);
  absl::Status LaunchRows(const Rows& rows, const Slot& slot);
  absl::Status SendIds(const LogitGroup& group, const Slot& slot, std::int64_t* used);
  absl::Status FetchResults(const StepCounts& counts, const Slot& slot);

  const CudaShape shape_;
  const bool graphs_on_;
  CudaBuffer weight_memory_;
  CudaBuffer workspace_memory_;
  CudaWorkspace workspace_;
  std::optional<CudaKvPool> kv_;
  std::optional<KvCopies> copies_;
  std::array<Slot, kStepSlots> slots_;
  CudaStream stream_;
  std::unique_ptr<Forward> forward_;

  StepPacker packer_;
  SamplingPacker sampling_;
  DecodeGraphs graphs_;
};

}  // namespace berth
