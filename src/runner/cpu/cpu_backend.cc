#include "runner/cpu/cpu_backend.h"

#include <pthread.h>

#include <bit>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/thread_pool.h"
#include "runner/cpu/transformer.h"
#include "runner/step_inputs.h"

namespace berth {
namespace {

// A driver thread runs the steps, as the first thread of the pool: the engine's own thread stays free to plan ahead.
class CpuBackend final : public Backend {
 public:
  CpuBackend(BackendInfo info, std::unique_ptr<ThreadPool> pool, std::unique_ptr<Transformer> transformer)
      : info_(std::move(info)),
        inputs_({info_.vocab_size, info_.max_context_tokens, info_.max_step_tokens, info_.pool}),
        pool_(std::move(pool)),
        transformer_(std::move(transformer)),
        driver_([this] { Drive(); }) {}

  ~CpuBackend() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    driver_.join();
  }

  const BackendInfo& info() const override { return info_; }

  absl::Status Submit(const StepPlan& plan) override {
    {
      const std::lock_guard lock(mutex_);
      BERTH_CHECK(phase_ == Phase::kIdle);
    }
    inputs_.Pack(plan);  // here, so that a broken plan crashes where it was made
    {
      const std::lock_guard lock(mutex_);
      result_.step = plan.step;
      phase_ = Phase::kSubmitted;
    }
    changed_.notify_all();
    return absl::OkStatus();
  }

  void NotifyWhenDone(std::function<void()> notify) override { notify_ = std::move(notify); }

  absl::Status Await(StepResult* result) override {
    std::unique_lock lock(mutex_);
    BERTH_CHECK(phase_ != Phase::kIdle);
    changed_.wait(lock, [this] { return phase_ == Phase::kDone; });
    phase_ = Phase::kIdle;
    std::swap(*result, result_);
    return absl::OkStatus();
  }

 private:
  enum class Phase : std::uint8_t { kIdle, kSubmitted, kDone };

  void Drive() {
    pthread_setname_np(pthread_self(), "berth-cpu-0");
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || phase_ == Phase::kSubmitted; });
      if (phase_ != Phase::kSubmitted) return;
      lock.unlock();
      const auto begin = std::chrono::steady_clock::now();
      transformer_->Run(inputs_, &result_);
      result_.busy = std::chrono::steady_clock::now() - begin;
      lock.lock();
      phase_ = Phase::kDone;
      changed_.notify_all();
      if (!notify_) continue;
      lock.unlock();
      notify_();
      lock.lock();
    }
  }

  const BackendInfo info_;
  std::function<void()> notify_;
  // The engine's thread packs while no step is in flight; the driver reads while one is.
  StepInputs inputs_;
  StepResult result_;
  const std::unique_ptr<ThreadPool> pool_;
  const std::unique_ptr<Transformer> transformer_;

  std::mutex mutex_;
  std::condition_variable changed_;
  Phase phase_ = Phase::kIdle;  // guarded by mutex_
  bool stop_ = false;           // guarded by mutex_
  std::thread driver_;          // last: it uses all of the above
};

absl::Status CheckOptions(const CpuBackendOptions& options) {
  const auto block_tokens = static_cast<std::uint32_t>(options.pool.block_tokens);
  if (options.threads < 1) return absl::InvalidArgumentError(absl::StrCat(options.threads, " threads: at least 1"));
  if (options.pool.num_blocks < 1) {
    return absl::InvalidArgumentError(absl::StrCat("a KV pool of ", options.pool.num_blocks, " blocks: at least 1"));
  }
  if (options.pool.host_blocks < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a host KV pool of ", options.pool.host_blocks, " blocks: at least 0"));
  }
  if (options.pool.block_tokens < 1 || options.pool.block_tokens > cpu::kAttentionChunkTokens ||
      !std::has_single_bit(block_tokens)) {
    return absl::InvalidArgumentError(absl::StrCat("KV blocks of ", options.pool.block_tokens,
                                                   " tokens: a power of two from 1 to ", cpu::kAttentionChunkTokens));
  }
  if (options.max_step_tokens < 1) {
    return absl::InvalidArgumentError(absl::StrCat("steps of ", options.max_step_tokens, " tokens: at least 1"));
  }
  if (options.compute == ComputeMode::kFloat32 && options.kv_dtype != KvDtype::kFloat32) {
    return absl::InvalidArgumentError(
        absl::StrCat("float32 mode needs a float32 KV cache, not ", KvDtypeName(options.kv_dtype)));
  }
  if (options.level.has_value() && *options.level > cpu::DetectCpuLevel()) {
    return absl::InvalidArgumentError(absl::StrCat("this machine has no ", cpu::CpuLevelName(*options.level),
                                                   "; its best level is ", cpu::CpuLevelName(cpu::DetectCpuLevel())));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const Model& model, const CpuBackendOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  if (model.config.head_dim > cpu::kAttentionMaxHeadDim) {
    return absl::InvalidArgumentError(absl::StrCat("heads of ", model.config.head_dim, " elements: at most ",
                                                   cpu::kAttentionMaxHeadDim, " are served on the CPU"));
  }
  const cpu::CpuLevel level = options.level.value_or(cpu::DetectCpuLevel());
  auto pool = std::make_unique<ThreadPool>(options.threads, "berth-cpu");
  absl::StatusOr<std::unique_ptr<Transformer>> transformer = Transformer::Create(model, options, level, pool.get());
  if (!transformer.ok()) return transformer.status();

  BackendInfo info;
  info.name = absl::StrCat("cpu (", cpu::CpuLevelName(level), ", ", options.threads, " thread",
                           options.threads == 1 ? "" : "s", ")");
  info.pool = options.pool;
  info.kv_dtype = options.kv_dtype;
  info.vocab_size = model.config.vocab_size;
  info.max_context_tokens = model.config.context_tokens;
  info.max_step_tokens = options.max_step_tokens;
  return std::make_unique<CpuBackend>(std::move(info), std::move(pool), *std::move(transformer));
}

}  // namespace berth
