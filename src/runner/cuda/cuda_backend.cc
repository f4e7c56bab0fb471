#include "runner/cuda/cuda_backend.h"

#include <pthread.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "runner/cuda/cuda_devices.h"
#include "runner/cuda/cuda_shape.h"
#include "runner/cuda/step_runner.h"
#include "runner/step_inputs.h"

namespace berth {
namespace {

// The engine's thread enqueues; a thread of its own waits for the steps in order and tells.
class CudaBackend final : public Backend {
 public:
  CudaBackend(BackendInfo info, int device, std::unique_ptr<StepRunner> runner)
      : info_(std::move(info)),
        device_(device),
        inputs_({info_.vocab_size, info_.max_context_tokens, info_.max_step_tokens, info_.pool,
                 /*carried_tokens=*/true}),
        runner_(std::move(runner)),
        waiter_([this] { WaitForSteps(); }) {}

  ~CudaBackend() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    waiter_.join();
  }

  const BackendInfo& info() const override { return info_; }

  absl::Status Submit(const StepPlan& plan) override {
    std::int64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      BERTH_CHECK(submitted_ - taken_ < kStepSlots);
      BERTH_CHECK(plan.carried_tokens.empty() || submitted_ > taken_);
      if (!broken_.ok()) return broken_;
      number = submitted_;
    }
    if (cudaError_t error = cudaSetDevice(device_); error != cudaSuccess) {
      return Remember(CudaError("cudaSetDevice", error));
    }
    inputs_.Pack(plan);
    if (absl::Status status = runner_->Enqueue(inputs_, plan.step, SlotOf(number)); !status.ok()) {
      return Remember(std::move(status));
    }
    {
      const std::lock_guard lock(mutex_);
      ++submitted_;
    }
    changed_.notify_all();
    return absl::OkStatus();
  }

  void NotifyWhenDone(std::function<void()> notify) override { notify_ = std::move(notify); }

  absl::Status Await(StepResult* result) override {
    std::unique_lock lock(mutex_);
    BERTH_CHECK(submitted_ > taken_);
    changed_.wait(lock, [this] { return done_ > taken_; });
    const Ended& ended = ended_[static_cast<std::size_t>(SlotOf(taken_))];
    const int slot = SlotOf(taken_++);
    if (!ended.status.ok()) return ended.status;
    result->busy = ended.busy;
    runner_->Read(slot, result);
    return absl::OkStatus();
  }

 private:
  struct Ended {
    absl::Status status;
    Duration busy{};
  };

  static int SlotOf(std::int64_t number) { return static_cast<int>(number % kStepSlots); }

  // An error that the device does not come back from fails every later step; one of a call's arguments or of memory
  // fails the step that ran into it.
  absl::Status Remember(absl::Status status) {
    if (!runner_->IsAlive()) {
      const std::lock_guard lock(mutex_);
      if (broken_.ok()) broken_ = status;
    }
    return status;
  }

  void WaitForSteps() {
    pthread_setname_np(pthread_self(), "berth-cuda");
    static_cast<void>(cudaSetDevice(device_));
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || submitted_ > done_; });
      if (submitted_ == done_) return;
      const int slot = SlotOf(done_);
      lock.unlock();
      // What a kernel runs into is found here.
      Ended ended;
      ended.status = runner_->Wait(slot, &ended.busy);
      lock.lock();
      if (broken_.ok()) broken_ = ended.status;
      ended_[static_cast<std::size_t>(slot)] = std::move(ended);
      ++done_;
      changed_.notify_all();
      if (!notify_) continue;
      lock.unlock();
      notify_();
      lock.lock();
    }
  }

  const BackendInfo info_;
  const int device_;
  std::function<void()> notify_;
  StepInputs inputs_;  // the engine's thread alone
  const std::unique_ptr<StepRunner> runner_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Steps so far, guarded by mutex_.
  std::int64_t submitted_ = 0;
  std::int64_t done_ = 0;
  std::int64_t taken_ = 0;
  std::array<Ended, kStepSlots> ended_;  // guarded by mutex_: of each slot's step
  absl::Status broken_;                  // guarded by mutex_: the first error that the device does not come back from
  bool stop_ = false;                    // guarded by mutex_
  std::thread waiter_;                   // last: it uses all of the above
};

std::string NameOf(const CudaDevice& device) {
  return absl::StrCat("cuda (", device.name, ", ", device.compute_major, ".", device.compute_minor, ")");
}

}  // namespace

bool HasCudaBackend() { return true; }

absl::StatusOr<CudaMemoryPlan> PlanCudaMemory(const Model& model, const CudaBackendOptions& options) {
  absl::StatusOr<CudaShape> shape = ReadCudaShape(model, options);
  if (!shape.ok()) return shape.status();
  return PlanMemory(model, *shape);
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const Model& model, const CudaBackendOptions& options) {
  if (options.pool.num_blocks < 1) {
    return absl::InvalidArgumentError(absl::StrCat("a KV pool of ", options.pool.num_blocks, " blocks: at least 1"));
  }
  absl::StatusOr<CudaShape> shape = ReadCudaShape(model, options);
  if (!shape.ok()) return shape.status();
  absl::StatusOr<CudaDevice> device = FindCudaDevice(options.device);
  if (!device.ok()) return device.status();
  BERTH_CUDA_CALL(cudaSetDevice, options.device);
  absl::StatusOr<std::unique_ptr<StepRunner>> runner = StepRunner::Create(model, *shape, options);
  if (!runner.ok()) return runner.status();

  BackendInfo info;
  info.name = NameOf(*device);
  info.pool = options.pool;
  info.kv_dtype = options.kv_dtype;
  info.vocab_size = model.config.vocab_size;
  info.max_context_tokens = model.config.context_tokens;
  info.max_step_tokens = options.max_step_tokens;
  info.max_sequences = options.max_sequences;
  info.max_steps_in_flight = kStepSlots;
  return std::make_unique<CudaBackend>(std::move(info), options.device, *std::move(runner));
}

}  // namespace berth
