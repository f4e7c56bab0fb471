#include "runner/cpu/cpu_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <semaphore>
#include <string>
#include <utility>
#include <vector>

#include "backend_harness.h"
#include "runner/sampler.h"

namespace berth::test {
namespace {

using testing::HasSubstr;

CpuBackendOptions SmallOptions(int threads = 2) {
  CpuBackendOptions options;
  options.threads = threads;
  options.pool = {32, 16};
  options.max_step_tokens = 128;
  return options;
}

std::unique_ptr<Model> SmallModel() { return OpenModel(MakeTinyLlama({.matrix_type = gguf_type::kQ8_0})); }

std::vector<TokenId> Ids(std::int32_t count) {
  std::vector<TokenId> ids;
  for (std::int32_t i = 0; i < count; ++i) ids.push_back((i * 37 + 5) % 320);
  return ids;
}

FedSequence Sequence(std::int32_t tokens, BlockId first_block = 0) {
  return {Ids(tokens), Blocks(tokens, 16, first_block), 0};
}

SamplingSpec Spec(float temperature) {
  SamplingSpec spec;
  spec.temperature = temperature;
  spec.seed = 42;
  return spec;
}

StepResult RunPlan(Backend& backend, const StepPlan& plan) {
  EXPECT_TRUE(backend.Submit(plan).ok());
  StepResult result;
  EXPECT_TRUE(backend.Await(&result).ok());
  return result;
}

// One step over `tokens` tokens that wants a token drawn after the last.
StepPlan DrawingPlan(std::int32_t tokens, const SamplingSpec& spec, const std::vector<TokenId>& history) {
  StepUnderTest step;
  FedSequence sequence = Sequence(tokens);
  step.Feed(&sequence, tokens, 1, kNoLogprobs);
  StepPlan plan = step.plan();
  plan.logit_rows[0].target = kNoToken;
  plan.logit_rows[0].sampling.spec = &spec;
  plan.logit_rows[0].sampling.history = history;
  return plan;
}

TEST(CpuBackend, DescribesItself) {
  const std::unique_ptr<Model> model = SmallModel();
  const std::unique_ptr<Backend> backend = MakeBackend(*model, SmallOptions());
  EXPECT_EQ(backend->info().name, "cpu (" + std::string(cpu::CpuLevelName(cpu::DetectCpuLevel())) + ", 2 threads)");
  EXPECT_EQ(backend->info().pool.num_blocks, 32);
  EXPECT_EQ(backend->info().pool.block_tokens, 16);
  EXPECT_EQ(backend->info().kv_dtype, KvDtype::kBf16);
  EXPECT_EQ(backend->info().vocab_size, 320);
  EXPECT_EQ(backend->info().max_context_tokens, 256);
  EXPECT_EQ(backend->info().max_step_tokens, 128);
}

TEST(CpuBackend, RunsAfterTheModelWasClosed) {
  std::unique_ptr<Model> model = SmallModel();
  const std::unique_ptr<Backend> backend = MakeBackend(*model, SmallOptions());
  const std::vector<Following> open = FeedAll(*backend, Sequence(20), 20, 5);
  model.reset();
  EXPECT_TRUE(FeedAll(*backend, Sequence(20), 20, 5) == open);
}

TEST(CpuBackend, GreedyDrawsTheMostLikelyToken) {
  const std::unique_ptr<Model> model = SmallModel();
  const std::unique_ptr<Backend> backend = MakeBackend(*model, SmallOptions());
  const SamplingSpec greedy = Spec(0.0F);
  const std::vector<TokenId> history = Ids(20);
  StepPlan plan = DrawingPlan(20, greedy, history);
  EXPECT_EQ(RunPlan(*backend, plan).logits[0].num_top, 0);
  plan.logit_rows[0].top_logprobs = 3;
  const StepResult result = RunPlan(*backend, plan);
  ASSERT_EQ(result.top.size(), 3U);
  EXPECT_EQ(result.logits[0].token, result.top[0].token_id);
  EXPECT_EQ(result.logits[0].logprob, result.top[0].logprob);
  EXPECT_GE(result.top[0].logprob, result.top[1].logprob);
  EXPECT_GE(result.top[1].logprob, result.top[2].logprob);
}

TEST(CpuBackend, ZeroTopLogprobsReportTheTokensOwn) {
  const std::unique_ptr<Model> model = SmallModel();
  const std::unique_ptr<Backend> backend = MakeBackend(*model, SmallOptions());
  const SamplingSpec greedy = Spec(0.0F);
  const std::vector<TokenId> history = Ids(20);
  StepPlan plan = DrawingPlan(20, greedy, history);
  plan.logit_rows[0].top_logprobs = 0;
  const StepResult result = RunPlan(*backend, plan);
  EXPECT_TRUE(result.top.empty());
  EXPECT_LT(result.logits[0].logprob, 0.0F);
  EXPECT_EQ(result.logits[0].logprob, FeedAll(*backend, Sequence(20), 20, 1).back().top[0].logprob);
}

TEST(CpuBackend, DrawnTokensDependOnSeedChoiceAndPositionAlone) {
  const std::unique_ptr<Model> model = SmallModel();
  const std::unique_ptr<Backend> backend = MakeBackend(*model, SmallOptions(1));
  const std::unique_ptr<Backend> threaded = MakeBackend(*model, SmallOptions(3));
  const SamplingSpec spec = Spec(1.5F);
  const std::vector<TokenId> history = Ids(20);
  StepPlan plan = DrawingPlan(20, spec, history);
  const TokenId alone = RunPlan(*backend, plan).logits[0].token;
  // The same draw among 50 choices of one position and behind another sequence: more logit rows than one group holds.
  for (int choice = 1; choice < 50; ++choice) {
    plan.logit_rows.push_back(plan.logit_rows[0]);
    plan.logit_rows.back().sampling.choice_index = choice;
    plan.logit_rows.back().top_logprobs = choice % 3 - 1;
  }
  const StepResult one = RunPlan(*backend, plan);
  const StepResult three = RunPlan(*threaded, plan);
  EXPECT_EQ(one.logits[0].token, alone);
  ASSERT_EQ(one.logits.size(), 50U);
  ASSERT_EQ(one.top.size(), three.top.size());
  bool choices_differ = false;
  for (std::size_t i = 0; i < one.logits.size(); ++i) {
    EXPECT_EQ(one.logits[i].token, three.logits[i].token) << i;
    EXPECT_EQ(one.logits[i].top_begin, three.logits[i].top_begin) << i;
    EXPECT_EQ(one.logits[i].num_top, std::max(plan.logit_rows[i].top_logprobs, 0)) << i;
    choices_differ = choices_differ || one.logits[i].token != alone;
  }
  EXPECT_TRUE(choices_differ);
}

TEST(CpuBackend, AStepWithoutLogitRowsStoresItsTokens) {
  const std::unique_ptr<Model> model = SmallModel();
  const std::unique_ptr<Backend> backend = MakeBackend(*model, SmallOptions());
  const std::vector<Following> expected = FeedAll(*backend, Sequence(40), 40, 4);
  FedSequence sequence = Sequence(40, 10);
  StepUnderTest step;
  step.Feed(&sequence, 39, 0, kNoLogprobs);
  EXPECT_TRUE(step.Run(*backend).front().empty());
  step.Feed(&sequence, 1, 1, 4);
  EXPECT_TRUE(step.Run(*backend).front().front() == expected.back());
}

TEST(CpuBackend, TellsOnceOfEveryStepThatIsDone) {
  const std::unique_ptr<Model> model = SmallModel();
  CpuBackendOptions options = SmallOptions();
  options.pool.host_blocks = 1;
  std::counting_semaphore<> done(0);
  const std::unique_ptr<Backend> backend = MakeBackend(*model, options);
  backend->NotifyWhenDone([&done] { done.release(); });
  StepResult result;
  StepUnderTest step;
  for (FedSequence sequence = Sequence(20); sequence.left() > 0;) {
    step.Feed(&sequence, 4, 1, kNoLogprobs);
    ASSERT_TRUE(backend->Submit(step.plan()).ok());
    done.acquire();
    ASSERT_TRUE(backend->Await(&result).ok());
    EXPECT_EQ(result.logits.size(), 1U);
    step.plan().Clear();
  }
  StepPlan copies;
  copies.swap_out = {{0, 0}};
  ASSERT_TRUE(backend->Submit(copies).ok());
  done.acquire();
  ASSERT_TRUE(backend->Await(&result).ok());
  EXPECT_TRUE(result.logits.empty());
  EXPECT_FALSE(done.try_acquire());
}

TEST(CpuBackend, TellsHowLongItComputed) {
  const std::unique_ptr<Model> model = SmallModel();
  const std::unique_ptr<Backend> backend = MakeBackend(*model, SmallOptions());
  StepUnderTest step;
  FedSequence sequence = Sequence(60);
  step.Feed(&sequence, 60, 1, kNoLogprobs);
  EXPECT_GT(RunPlan(*backend, step.plan()).busy.count(), 0);
}

TEST(CpuBackend, ABrokenModelsNaNsReachTheAnswerWithoutACrash) {
  GgufBuilder builder = MakeTinyLlama();
  builder.RemoveTensor("output_norm.weight");
  std::vector<float> norm(64, 1.0F);
  norm[7] = std::numeric_limits<float>::quiet_NaN();
  norm[8] = std::numeric_limits<float>::infinity();
  builder.AddF32Tensor("output_norm.weight", {64}, norm);
  const std::unique_ptr<Model> model = OpenModel(builder);
  ASSERT_NE(model, nullptr);
  for (const KvDtype dtype : {KvDtype::kBf16, KvDtype::kInt8, KvDtype::kFloat32}) {
    CpuBackendOptions options = SmallOptions();
    options.kv_dtype = dtype;
    const std::unique_ptr<Backend> backend = MakeBackend(*model, options);
    const SamplingSpec spec = Spec(1.0F);
    const std::vector<TokenId> history = Ids(20);
    StepPlan plan = DrawingPlan(20, spec, history);
    plan.logit_rows[0].top_logprobs = 5;
    const StepResult result = RunPlan(*backend, plan);
    EXPECT_GE(result.logits[0].token, 0);
    EXPECT_LT(result.logits[0].token, 320);
  }
}

TEST(CpuBackend, ABrokenSequenceDoesNotTouchAnother) {
  // Token 3's embedding is not a number: its sequence is lost, the other's bits are as ever.
  GgufBuilder builder = MakeTinyLlama();
  std::vector<float> embedding(320 * 64);
  for (std::size_t i = 0; i < embedding.size(); ++i) embedding[i] = std::sin(static_cast<float>(i));
  for (std::size_t i = 0; i < 64; ++i) embedding[3 * 64 + i] = std::numeric_limits<float>::quiet_NaN();
  builder.RemoveTensor("token_embd.weight").AddF32Tensor("token_embd.weight", {64, 320}, embedding);
  const std::unique_ptr<Model> model = OpenModel(builder);
  ASSERT_NE(model, nullptr);
  for (const KvDtype dtype : {KvDtype::kBf16, KvDtype::kInt8, KvDtype::kFloat32}) {
    SCOPED_TRACE(KvDtypeName(dtype));
    CpuBackendOptions options = SmallOptions();
    options.kv_dtype = dtype;
    const std::unique_ptr<Backend> backend = MakeBackend(*model, options);
    const std::vector<Following> expected = FeedAll(*backend, Sequence(20), 20, 320);
    FedSequence broken{{3, 3, 3, 3, 3, 3, 3}, {9}, 0};
    FedSequence healthy = Sequence(20, 1);
    StepUnderTest step;
    step.Feed(&broken, 7, 7, 1);
    step.Feed(&healthy, 20, 20, 320);
    EXPECT_TRUE(step.Run(*backend)[1] == expected);
    // And the block it filled with NaN serves the next sequence, which only partly overwrites it.
    FedSequence next{Ids(3), {9}, 0};
    const std::vector<Following> on_dirty_block = FeedAll(*backend, next, 1, 320);
    EXPECT_TRUE(std::equal(on_dirty_block.begin(), on_dirty_block.end() - 1, expected.begin()));
  }
}

TEST(CpuBackend, AnUntouchedPoolCostsNoMemory) {
  const std::unique_ptr<Model> model = SmallModel();
  CpuBackendOptions options = SmallOptions();
  options.pool = {1 << 20, 256};  // 64 GiB
  const std::unique_ptr<Backend> backend = MakeBackend(*model, options);
  ASSERT_NE(backend, nullptr);
  FedSequence last{Ids(20), {(1 << 20) - 1}, 0};
  const std::unique_ptr<Backend> small = MakeBackend(*model, SmallOptions());
  EXPECT_TRUE(FeedAll(*backend, last, 20, 5) == FeedAll(*small, Sequence(20), 20, 5));
}

std::string RefusalOf(const CpuBackendOptions& options) {
  const std::unique_ptr<Model> model = SmallModel();
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCpuBackend(*model, options);
  return backend.ok() ? "accepted" : std::string(backend.status().message());
}

TEST(CpuBackend, RefusesWhatItCannotDoInOneLineThatNamesIt) {
  CpuBackendOptions options = SmallOptions();
  options.threads = 0;
  EXPECT_EQ(RefusalOf(options), "0 threads: at least 1");
  options = SmallOptions();
  options.pool.num_blocks = 0;
  EXPECT_EQ(RefusalOf(options), "a KV pool of 0 blocks: at least 1");
  options = SmallOptions();
  options.pool.host_blocks = -1;
  EXPECT_EQ(RefusalOf(options), "a host KV pool of -1 blocks: at least 0");
  for (const std::int32_t block_tokens : {-16, 0, 3, 24, 512}) {
    options = SmallOptions();
    options.pool.block_tokens = block_tokens;
    EXPECT_THAT(RefusalOf(options), HasSubstr("a power of two from 1 to 256")) << block_tokens;
  }
  options = SmallOptions();
  options.max_step_tokens = 0;
  EXPECT_EQ(RefusalOf(options), "steps of 0 tokens: at least 1");
  options = SmallOptions();
  options.compute = ComputeMode::kFloat32;
  EXPECT_EQ(RefusalOf(options), "float32 mode needs a float32 KV cache, not bf16");
  options.kv_dtype = KvDtype::kInt8;
  EXPECT_EQ(RefusalOf(options), "float32 mode needs a float32 KV cache, not int8");
}

TEST(CpuBackend, TooLargeAPoolIsRefusedWithItsBytes) {
  CpuBackendOptions options = SmallOptions();
  options.pool = {std::numeric_limits<std::int32_t>::max(), 256};
  const std::string refusal = RefusalOf(options);
  EXPECT_THAT(refusal, HasSubstr("bytes of the KV pool of 2147483647 blocks of 256 tokens in bf16"));
  EXPECT_THAT(refusal, testing::Not(HasSubstr("\n")));
}

using CpuBackendDeathTest = testing::Test;

TEST(CpuBackendDeathTest, ABrokenPlanCrashesWhereItIsSubmitted) {
  const std::unique_ptr<Model> model = SmallModel();
  EXPECT_DEATH(
      {
        const std::unique_ptr<Backend> backend = MakeBackend(*model, SmallOptions(1));
        StepUnderTest step;
        FedSequence sequence = Sequence(20);
        sequence.ids[4] = 320;
        step.Feed(&sequence, 20, 1, kNoLogprobs);
        static_cast<void>(backend->Submit(step.plan()));
      },
      "vocab_size");
}

TEST(CpuBackendDeathTest, AwaitingNothingCrashes) {
  const std::unique_ptr<Model> model = SmallModel();
  EXPECT_DEATH(
      {
        const std::unique_ptr<Backend> backend = MakeBackend(*model, SmallOptions(1));
        StepResult result;
        static_cast<void>(backend->Await(&result));
      },
      "kIdle");
}

}  // namespace
}  // namespace berth::test
