// What the CUDA backend refuses, and what becomes of it when calls fail and kernels fault.
#include <gmock/gmock.h>

#include <limits>
#include <mutex>
#include <semaphore>
#include <string>

#include "cuda_fixture.h"
#include "emulation/runtime.h"

namespace berth::test {
namespace {

using emulation::CountLiveObjects;
using emulation::FailCall;
using emulation::LiveObjects;
using testing::HasSubstr;
using testing::Not;

class CudaFaults : public CudaBackendTest {
 protected:
  static absl::Status StatusOf(const Model& model, const CudaBackendOptions& options) {
    return MakeCudaBackend(model, options).status();
  }
  static std::string RefusalOf(const CudaBackendOptions& options) {
    return std::string(StatusOf(*SmallModel(), options).message());
  }
  static std::string RefusalOf(const TinyLlama& spec) {
    return std::string(StatusOf(*OpenModel(MakeTinyLlama(spec)), Options()).message());
  }

  // A step of a prompt and one of a decode row.
  static StepPlan PlanOf(DrawnSequence* sequence) {
    StepPlan plan;
    AddDraw(&plan, sequence);
    return plan;
  }
};

TEST_F(CudaFaults, WhatItCannotDoIsRefusedInOneLineThatNamesIt) {
  CudaBackendOptions options = Options();
  options.device = 1;
  EXPECT_EQ(RefusalOf(options), "no CUDA device 1: there is 1");
  options.device = -1;
  EXPECT_EQ(RefusalOf(options), "no CUDA device -1");
  options = Options();
  options.kv_dtype = KvDtype::kFloat32;
  EXPECT_EQ(RefusalOf(options), "a KV cache in float32 is not served on CUDA: bf16 or int8");
  options = Options();
  options.pool.num_blocks = 0;
  EXPECT_EQ(RefusalOf(options), "a KV pool of 0 blocks: at least 1");
  options = Options();
  options.pool.host_blocks = -1;
  EXPECT_EQ(RefusalOf(options), "a host KV pool of -1 blocks: at least 0");
  for (const std::int32_t block_tokens : {-16, 0, 1, 3, 24, 512}) {
    options = Options();
    options.pool.block_tokens = block_tokens;
    EXPECT_THAT(RefusalOf(options), HasSubstr("tokens: a power of two from 2 to 256")) << block_tokens;
  }
  options = Options();
  options.max_step_tokens = 0;
  EXPECT_EQ(RefusalOf(options), "steps of 0 tokens: at least 1");
  options = Options();
  options.max_sequences = 0;
  EXPECT_EQ(RefusalOf(options), "steps of 0 sequences: at least 1");
  options = Options();
  options.max_top_logprobs = -1;
  EXPECT_EQ(RefusalOf(options), "-1 top log-probabilities: at least 0");
  EXPECT_EQ(RefusalOf(TinyLlama{.hidden = 36, .heads = 2, .kv_heads = 2}),
            "a hidden size of 36: multiples of 8 up to 16384 are served on CUDA");
  EXPECT_EQ(RefusalOf(TinyLlama{.hidden = 48, .heads = 4, .kv_heads = 2}),
            "heads of 12 elements: multiples of 8 up to 256 are served on CUDA");
}

TEST_F(CudaFaults, TooLittleMemoryIsToldWithWhatItWasFor) {
  const std::unique_ptr<Model> model = SmallModel();
  const absl::StatusOr<CudaMemoryPlan> plan = PlanCudaMemory(*model, Options());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto with_memory = [&](std::int64_t bytes) {
    emulation::settings().device_memory_bytes = static_cast<std::size_t>(bytes);
    const absl::Status status = StatusOf(*model, Options());
    EXPECT_EQ(CountLiveObjects(), LiveObjects{});
    return status;
  };
  const std::int64_t all = plan->weight_bytes + plan->workspace_bytes + Options().pool.num_blocks * plan->block_bytes;
  EXPECT_EQ(with_memory(all), absl::OkStatus()) << "as much as was planned is enough";
  absl::Status status = with_memory(plan->weight_bytes - 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("no room for the " + std::to_string(plan->weight_bytes) +
                                          " bytes of the weights: cudaMalloc: "));
  EXPECT_THAT(with_memory(plan->weight_bytes).message(), HasSubstr("bytes of the activations of a step: cudaMalloc"));
  EXPECT_THAT(with_memory(plan->weight_bytes + plan->workspace_bytes).message(),
              HasSubstr("bytes of the KV pool of 16 blocks of 16 tokens in bf16: cudaMalloc"));
  status = with_memory(all - 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), Not(HasSubstr("\n")));
}

TEST_F(CudaFaults, AllocatesWhatWasPlanned) {
  for (const bool tuned : {false, true}) {
    for (const KvDtype dtype : {KvDtype::kBf16, KvDtype::kInt8}) {
      const std::unique_ptr<Model> model = SmallModel(tuned, gguf_type::kQ8_0);
      CudaBackendOptions options = Options(dtype);
      const absl::StatusOr<CudaMemoryPlan> plan = PlanCudaMemory(*model, options);
      ASSERT_TRUE(plan.ok()) << plan.status();
      std::int64_t done = 0;
      options.progress = [&](std::int64_t now, std::int64_t total) {
        EXPECT_GT(now, done);
        EXPECT_LE(now, total);
        done = now;
      };
      const std::unique_ptr<Backend> backend = Make(*model, options);
      EXPECT_EQ(static_cast<std::int64_t>(CountLiveObjects().device_bytes),
                plan->weight_bytes + plan->workspace_bytes + options.pool.num_blocks * plan->block_bytes);
      EXPECT_GT(done, plan->weight_bytes * 9 / 10) << "but for what aligns them";
      EXPECT_LE(done, plan->weight_bytes);
    }
  }
}

TEST_F(CudaFaults, EveryCallThatFailsWhileItIsMadeIsToldAndGivesEverythingBack) {
  const std::unique_ptr<Model> model = SmallModel();
  int failures = 0;
  // All calls of the beginning and the end; of the many copies of weights in between some.
  for (std::uint64_t nth = 1;; nth += nth < 40 ? 1 : 7) {
    FailCall(nth, cudaErrorMemoryAllocation);
    const absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCudaBackend(*model, Options());
    if (FailCall(0)) {
      EXPECT_TRUE(backend.ok()) << backend.status();
      break;
    }
    ++failures;
    EXPECT_FALSE(backend.ok()) << "call " << nth;
    EXPECT_THAT(backend.status().message(),
                testing::AnyOf(HasSubstr("cudaErrorMemoryAllocation (2)"), HasSubstr("cublasLtMatmul")))
        << "call " << nth;
    EXPECT_EQ(CountLiveObjects(), LiveObjects{}) << "call " << nth;
  }
  EXPECT_GT(failures, 40);
}

TEST_F(CudaFaults, ACallThatFailsEndsItsStepAndNoOther) {
  const std::unique_ptr<Model> model = SmallModel();
  const std::unique_ptr<Backend> backend = Make(*model, Options());
  const DrawnSequence fresh = MakeDrawn(SomeIds(20), {0, 1});
  DrawnSequence expected = fresh;
  DrawAlone(*backend, &expected, 3);
  int failures = 0;
  // A prompt's step, whose kernels are launched one by one.
  for (std::uint64_t nth = 1;; ++nth) {
    DrawnSequence sequence = fresh;
    FailCall(nth);
    const StepPlan plan = PlanOf(&sequence);
    const absl::Status status = backend->Submit(plan);
    if (FailCall(0)) {
      StepResult result;
      EXPECT_EQ(backend->Await(&result), absl::OkStatus());
      break;
    }
    ++failures;
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(status.message(), testing::AnyOf(HasSubstr("cudaErrorInvalidValue (1)"), HasSubstr("cublasLtMatmul")))
        << "call " << nth;
  }
  EXPECT_GT(failures, 20);
  DrawnSequence again = fresh;
  DrawAlone(*backend, &again, 3);
  EXPECT_EQ(again.history, expected.history);
}

TEST_F(CudaFaults, ACaptureThatFailsIsAnErrorOfItsStep) {
  const std::unique_ptr<Model> model = SmallModel();
  const DrawnSequence fresh = MakeDrawn(SomeIds(1), {0});
  for (std::uint64_t nth = 1;; nth += 3) {
    const std::unique_ptr<Backend> backend = Make(*model, Options());
    DrawnSequence sequence = fresh;
    FailCall(nth);
    const StepPlan plan = PlanOf(&sequence);
    const absl::Status status = backend->Submit(plan);
    if (FailCall(0)) {
      StepResult result;
      EXPECT_EQ(backend->Await(&result), absl::OkStatus());
      break;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    const StepResult result = RunPlan(*backend, plan);
    EXPECT_EQ(result.logits.size(), 1U);
  }
}

TEST_F(CudaFaults, AFaultOfTheDeviceFailsEveryStepFromThenOn) {
  const std::unique_ptr<Model> model = SmallModel();
  std::unique_ptr<Backend> backend = Make(*model, Options());
  DrawnSequence first = MakeDrawn(SomeIds(5), {0});
  DrawnSequence second = MakeDrawn(SomeIds(7), {1});
  const StepPlan one = PlanOf(&first);
  const StepPlan two = PlanOf(&second);
  {
    // Nothing runs before both are on their way.
    const std::lock_guard lock(emulation::RuntimeMutex());
    ASSERT_EQ(backend->Submit(one), absl::OkStatus());
    ASSERT_EQ(backend->Submit(two), absl::OkStatus());
    emulation::RecordFault("planted");
  }
  StepResult result;
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = backend->Await(&result);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(status.message(), "cudaEventSynchronize: cudaErrorLaunchFailure (719)");
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(backend->Submit(one).message(), "cudaEventSynchronize: cudaErrorLaunchFailure (719)");
  }
  EXPECT_TRUE(emulation::TakeFault().has_value());
  backend.reset();
}

TEST_F(CudaFaults, AStepThatWasDoneBeforeTheFaultHasItsResult) {
  const std::unique_ptr<Model> model = SmallModel();
  std::unique_ptr<Backend> backend = Make(*model, Options());
  std::counting_semaphore<> done(0);
  backend->NotifyWhenDone([&] { done.release(); });
  DrawnSequence first = MakeDrawn(SomeIds(5), {0});
  DrawnSequence second = MakeDrawn(SomeIds(7), {1});
  const StepPlan one = PlanOf(&first);
  const StepPlan two = PlanOf(&second);
  ASSERT_EQ(backend->Submit(one), absl::OkStatus());
  done.acquire();
  {
    const std::lock_guard lock(emulation::RuntimeMutex());
    ASSERT_EQ(backend->Submit(two), absl::OkStatus());
    emulation::RecordFault("planted");
  }
  done.acquire();
  StepResult result;
  EXPECT_EQ(backend->Await(&result), absl::OkStatus());
  EXPECT_EQ(result.logits.size(), 1U);
  EXPECT_FALSE(backend->Await(&result).ok());
  EXPECT_TRUE(emulation::TakeFault().has_value());
  backend.reset();
}

TEST_F(CudaFaults, WhatADecodeStepLaunchesHasRunWhenTheBackendIsMade) {
  const std::unique_ptr<Model> model = SmallModel();
  const std::uint64_t before = emulation::counters().kernels;
  const std::unique_ptr<Backend> backend = Make(*model, Options());
  const std::uint64_t after = emulation::counters().kernels;
  DrawnSequence sequence = MakeDrawn(SomeIds(1), {0});
  DrawAlone(*backend, &sequence, 1);
  EXPECT_GE(after - before, emulation::counters().kernels - after);
}

TEST_F(CudaFaults, ABackendMayGoWithStepsInFlight) {
  const std::unique_ptr<Model> model = SmallModel();
  std::unique_ptr<Backend> backend = Make(*model, Options());
  DrawnSequence sequence = MakeDrawn(SomeIds(20), {0, 1});
  const StepPlan plan = PlanOf(&sequence);
  ASSERT_EQ(backend->Submit(plan), absl::OkStatus());
  backend.reset();
  EXPECT_EQ(CountLiveObjects(), LiveObjects{});
}

TEST_F(CudaFaults, DescribesDevices) {
  ASSERT_TRUE(HasCudaBackend());
  const absl::StatusOr<int> count = CountCudaDevices();
  ASSERT_TRUE(count.ok()) << count.status();
  ASSERT_EQ(*count, 1);
  const absl::StatusOr<CudaDevice> device = DescribeCudaDevice(0);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->index, 0);
  EXPECT_EQ(device->compute_major, 9);
  EXPECT_EQ(device->compute_minor, 0);
  EXPECT_EQ(device->unusable, "");
  EXPECT_EQ(device->free_bytes, device->total_bytes);
  EXPECT_TRUE(absl::IsNotFound(DescribeCudaDevice(1).status()));
  for (std::uint64_t nth = 1;; ++nth) {
    FailCall(nth, cudaErrorInvalidDevice);
    const absl::Status status = DescribeCudaDevice(0).status();
    if (FailCall(0)) break;
    EXPECT_THAT(status.message(), HasSubstr("cudaErrorInvalidDevice (101)"));
  }
}

}  // namespace
}  // namespace berth::test
