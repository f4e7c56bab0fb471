#include "runner/cuda/step_runner.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>

#include "kernels/cuda/sampling.h"
#include "kernels/params/quantized.h"
#include "runner/cuda/weight_upload.h"

namespace berth {
namespace {

constexpr std::size_t kDeviceAlignment = 256;

// Weights and workspace, where the bases are null only counted.
struct Layouts {
  CudaWeights weights;
  std::vector<WeightCopy> copies;
  CudaWorkspace workspace;
  std::size_t weight_bytes = 0;
  std::size_t workspace_bytes = 0;
};

Layouts LayOut(const Model& model, const CudaShape& shape, std::byte* weights, std::byte* workspace) {
  Layouts layouts;
  MemoryLayout weight_layout(weights, kDeviceAlignment);
  layouts.weights = LayOutWeights(model, shape, weight_layout, &layouts.copies);
  layouts.weight_bytes = weight_layout.bytes();
  MemoryLayout workspace_layout(workspace, kDeviceAlignment);
  layouts.workspace = LayOutWorkspace(shape, layouts.weights.dequantized_elements, workspace_layout);
  layouts.workspace_bytes = workspace_layout.bytes();
  return layouts;
}

template <typename T>
absl::Status Take(absl::StatusOr<T> made, T* to) {
  if (!made.ok()) return made.status();
  *to = *std::move(made);
  return absl::OkStatus();
}

template <typename T>
absl::Status Send(T* to, const std::byte* from, std::size_t count, cudaStream_t stream) {
  if (count == 0) return absl::OkStatus();
  BERTH_CUDA_CALL(cudaMemcpyAsync, to, from, count * sizeof(T), cudaMemcpyHostToDevice, stream);
  return absl::OkStatus();
}

}  // namespace

CudaMemoryPlan PlanMemory(const Model& model, const CudaShape& shape) {
  const Layouts layouts = LayOut(model, shape, nullptr, nullptr);
  return {.weight_bytes = static_cast<std::int64_t>(layouts.weight_bytes),
          .workspace_bytes =
              static_cast<std::int64_t>(layouts.workspace_bytes) + KvCopies::kBytesPerBlock * shape.pool.host_blocks,
          .block_bytes = KvBlockBytesOf(shape).block + KvCopies::kBytesPerBlock};
}

absl::StatusOr<std::unique_ptr<StepRunner>> StepRunner::Create(const Model& model, const CudaShape& shape,
                                                               const CudaBackendOptions& options) {
  std::unique_ptr<StepRunner> runner(new StepRunner(shape, options.graphs));
  BERTH_TRY(runner->TakeMemory(model, options));
  BERTH_TRY(runner->MakeSlots());
  if (absl::Status status = runner->WarmUp(); !status.ok()) {
    static_cast<void>(cudaDeviceSynchronize());  // before what it uses is given back
    return status;
  }
  return runner;
}

absl::Status StepRunner::TakeMemory(const Model& model, const CudaBackendOptions& options) {
  absl::StatusOr<Gemms> gemms = Gemms::Create(options.cublaslt_path);
  if (!gemms.ok()) return gemms.status();
  const Layouts counted = LayOut(model, shape_, nullptr, nullptr);
  BERTH_TRY(Take(CudaBuffer::OnDevice(counted.weight_bytes, "the weights"), &weight_memory_));
  BERTH_TRY(Take(CudaBuffer::OnDevice(counted.workspace_bytes, "the activations of a step"), &workspace_memory_));
  Layouts layouts = LayOut(model, shape_, weight_memory_.data(), workspace_memory_.data());
  workspace_ = layouts.workspace;
  absl::StatusOr<CudaKvPool> kv = CudaKvPool::Create(shape_);
  if (!kv.ok()) return kv.status();
  kv_ = *std::move(kv);
  absl::StatusOr<KvCopies> copies = KvCopies::Create(shape_);
  if (!copies.ok()) return copies.status();
  copies_ = *std::move(copies);
  BERTH_TRY(options.noise_weights ? FillWithNoise(weight_memory_.data(), weight_memory_.size())
                                  : UploadWeights(layouts.copies, options.progress));
  forward_ =
      std::make_unique<Forward>(shape_, std::move(layouts.weights), Products(*std::move(gemms)), workspace_, &*kv_);
  return forward_->Prepare();
}

absl::Status StepRunner::MakeSlots() {
  BERTH_TRY(Take(MakeCudaStream(), &stream_));
  const auto ids = static_cast<std::size_t>(shape_.max_step_ids);
  const std::size_t results = 2 * (static_cast<std::size_t>(shape_.max_logit_rows) + MostTopEntries(shape_));
  constexpr const char* kWhat = "a step's inputs and results";
  for (Slot& slot : slots_) {
    BERTH_TRY(Take(CudaBuffer::Pinned(MostInputBytes(shape_), kWhat), &slot.inputs));
    BERTH_TRY(Take(CudaBuffer::Pinned(ids * sizeof(std::int32_t), kWhat), &slot.ids));
    BERTH_TRY(Take(CudaBuffer::Pinned(ids * sizeof(float), kWhat), &slot.biases));
    BERTH_TRY(Take(CudaBuffer::Pinned(results * sizeof(std::int32_t), kWhat), &slot.results));
    BERTH_TRY(Take(MakeCudaEvent(cudaEventDefault), &slot.begin));
    // Whoever waits sleeps: the next step is on the device already, so that a late wake-up costs it no time.
    BERTH_TRY(Take(MakeCudaEvent(cudaEventBlockingSync), &slot.done));
  }
  return absl::OkStatus();
}

// The first launch of a kernel and the first product load their code and may take memory: not while a graph is
// captured, which a one-token prompt's first step does, and not in anybody's time. Rows that only fill up, as few as
// take weights' codes and as many as do not; and a device that cannot run them is told now.
absl::Status StepRunner::WarmUp() {
  const StepInputs nothing({.pool = shape_.pool});
  for (const std::int32_t most : {1, cuda::kQuantizedMatmulTokens + 1}) {
    Rows rows;
    rows.counts = packer_.Count(nothing);
    rows.counts.rows = rows.counts.tokens = rows.counts.logit_rows = std::min(most, shape_.max_rows);
    Stage(nothing, slots_[0], &rows);
    BERTH_TRY(LaunchRows(rows, slots_[0]));
    BERTH_CUDA_CALL(cudaStreamSynchronize, stream_.get());
  }
  return absl::OkStatus();
}

absl::Status StepRunner::Enqueue(const StepInputs& inputs, std::int64_t step, int slot) {
  Slot& at = slots_[static_cast<std::size_t>(slot)];
  at.step = step;
  at.top_counts.clear();
  absl::Status status = EnqueueAll(inputs, &at, slot);
  // What was enqueued reads the slot's memory, which the next step takes.
  if (!status.ok()) static_cast<void>(cudaDeviceSynchronize());
  return status;
}

// What takes the host's time comes before the first event: the time between the two is the device's.
absl::Status StepRunner::EnqueueAll(const StepInputs& inputs, Slot* slot, int number) {
  Rows rows;
  const bool has_rows = inputs.num_tokens() > 0;
  if (has_rows) BERTH_TRY(PrepareRows(inputs, slot, &rows));
  BERTH_CUDA_CALL(cudaEventRecord, slot->begin.get(), stream_.get());
  BERTH_TRY(copies_->Enqueue(inputs, *kv_, number, stream_.get()));
  if (has_rows) BERTH_TRY(LaunchRows(rows, *slot));
  BERTH_CUDA_CALL(cudaEventRecord, slot->done.get(), stream_.get());
  return absl::OkStatus();
}

absl::Status StepRunner::PrepareRows(const StepInputs& inputs, Slot* slot, Rows* rows) {
  rows->counts = packer_.Count(inputs);
  const bool only_decodes = graphs_on_ && StepPacker::OnlyDecodes(inputs);
  if (only_decodes) rows->counts = graphs_.SizeFor(rows->counts);
  Stage(inputs, *slot, rows);
  for (const LogitRow& row : inputs.logit_rows()) slot->top_counts.push_back(std::max(row.top_logprobs, 0));
  slot->first_logprob = rows->counts.logit_rows;
  if (!only_decodes || sampling_.groups().size() > 1) return absl::OkStatus();
  const absl::StatusOr<cudaGraphExec_t> graph = graphs_.Get(rows->counts, stream_.get(), [&]() -> absl::Status {
    BERTH_TRY(forward_->Compute(rows->counts, rows->arrays, stream_.get()));
    return forward_->Answer(rows->counts, rows->arrays, sampling_.groups().front(), stream_.get());
  });
  if (!graph.ok()) return graph.status();
  rows->graph = *graph;
  return absl::OkStatus();
}

// What the device needs of the step, into the slot's pinned memory.
void StepRunner::Stage(const StepInputs& inputs, const Slot& slot, Rows* rows) {
  MemoryLayout pinned(slot.inputs.data(), kStepAlignment);
  const StepArrays staged = LayOutStep(shape_, rows->counts, pinned);
  rows->input_bytes = pinned.bytes();
  packer_.Write(inputs, rows->counts, staged);
  sampling_.Pack(inputs, rows->counts, staged.logit_tokens, staged.sampling);
  MemoryLayout device(workspace_.inputs, kStepAlignment);
  rows->arrays = LayOutStep(shape_, rows->counts, device);
}

absl::Status StepRunner::LaunchRows(const Rows& rows, const Slot& slot) {
  BERTH_TRY(Send(workspace_.inputs, slot.inputs.data(), rows.input_bytes, stream_.get()));
  // Not in the graph: how many there are changes from step to step.
  BERTH_CUDA_CALL(cuda::LaunchCarryTokens,
                  {.token_index = rows.arrays.carried_tokens,
                   .logit_row = rows.arrays.carried_rows,
                   .drawn = workspace_.drawn,
                   .token_ids = rows.arrays.token_ids,
                   .num_tokens = rows.counts.carried},
                  stream_.get());
  if (rows.graph == nullptr) BERTH_TRY(forward_->Compute(rows.counts, rows.arrays, stream_.get()));
  std::int64_t used = 0;
  for (const LogitGroup& group : sampling_.groups()) {
    BERTH_TRY(SendIds(group, slot, &used));
    if (rows.graph == nullptr) BERTH_TRY(forward_->Answer(rows.counts, rows.arrays, group, stream_.get()));
  }
  if (rows.graph != nullptr) BERTH_CUDA_CALL(cudaGraphLaunch, rows.graph, stream_.get());
  return FetchResults(rows.counts, slot);
}

// Behind what earlier groups of the step have in the pinned memory, or, where there is no room left, when they are done
// with it: histories of millions of tokens in one step.
absl::Status StepRunner::SendIds(const LogitGroup& group, const Slot& slot, std::int64_t* used) {
  if (group.num_ids == 0) return absl::OkStatus();
  if (*used + group.num_ids > shape_.max_step_ids) {
    BERTH_CUDA_CALL(cudaStreamSynchronize, stream_.get());
    *used = 0;
  }
  const auto begin = static_cast<std::size_t>(group.ids_begin);
  const auto num_ids = static_cast<std::size_t>(group.num_ids);
  const auto num_biases = static_cast<std::size_t>(group.num_biases);
  std::byte* ids = slot.ids.data() + static_cast<std::size_t>(*used) * sizeof(std::int32_t);
  std::byte* biases = slot.biases.data() + static_cast<std::size_t>(*used) * sizeof(float);
  std::memcpy(ids, sampling_.ids().data() + begin, num_ids * sizeof(std::int32_t));
  std::memcpy(biases, sampling_.biases().data() + begin, num_biases * sizeof(float));
  BERTH_TRY(Send(workspace_.ids, ids, num_ids, stream_.get()));
  BERTH_TRY(Send(workspace_.biases, biases, num_biases, stream_.get()));
  *used += group.num_ids;
  return absl::OkStatus();
}

absl::Status StepRunner::FetchResults(const StepCounts& counts, const Slot& slot) {
  const auto fetch = [&](std::size_t at, const void* from, std::int32_t count) -> absl::Status {
    if (count == 0) return absl::OkStatus();
    BERTH_CUDA_CALL(cudaMemcpyAsync, slot.results.data() + at * sizeof(std::int32_t), from,
                    static_cast<std::size_t>(count) * sizeof(std::int32_t), cudaMemcpyDeviceToHost, stream_.get());
    return absl::OkStatus();
  };
  const std::size_t tops = 2 * static_cast<std::size_t>(shape_.max_logit_rows);
  BERTH_TRY(fetch(0, workspace_.drawn, 2 * counts.logit_rows));
  BERTH_TRY(fetch(tops, workspace_.top_ids, sampling_.top_entries()));
  return fetch(tops + MostTopEntries(shape_), workspace_.top_logprobs, sampling_.top_entries());
}

absl::Status StepRunner::Wait(int slot, Duration* busy) const {
  const Slot& at = slots_[static_cast<std::size_t>(slot)];
  BERTH_CUDA_CALL(cudaEventSynchronize, at.done.get());
  float milliseconds = 0;
  BERTH_CUDA_CALL(cudaEventElapsedTime, &milliseconds, at.begin.get(), at.done.get());
  *busy = std::chrono::duration_cast<Duration>(std::chrono::duration<float, std::milli>(milliseconds));
  return absl::OkStatus();
}

void StepRunner::Read(int slot, StepResult* result) const {
  const Slot& from = slots_[static_cast<std::size_t>(slot)];
  result->step = from.step;
  result->logits.clear();
  result->top.clear();
  const auto* drawn = reinterpret_cast<const std::int32_t*>(from.results.data());
  const auto* logprobs = reinterpret_cast<const float*>(drawn + from.first_logprob);
  const std::int32_t* top_ids = drawn + 2 * shape_.max_logit_rows;
  const auto* top_logprobs = reinterpret_cast<const float*>(top_ids + MostTopEntries(shape_));
  for (std::size_t i = 0; i < from.top_counts.size(); ++i) {
    const auto top_begin = static_cast<std::int32_t>(result->top.size());
    result->logits.push_back({drawn[i], logprobs[i], top_begin, from.top_counts[i]});
    for (std::int32_t entry = top_begin; entry < top_begin + from.top_counts[i]; ++entry) {
      result->top.push_back({top_ids[entry], top_logprobs[entry]});
    }
  }
}

bool StepRunner::IsAlive() const {
  const cudaError_t error = cudaStreamQuery(stream_.get());
  return error == cudaSuccess || error == cudaErrorNotReady;
}

}  // namespace berth
