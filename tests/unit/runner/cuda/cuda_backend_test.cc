// What the engine may expect of the CUDA backend, by both kinds of attention and both ways to store K and V.
#include <gmock/gmock.h>

#include <semaphore>
#include <string>

#include "cuda_fixture.h"

namespace berth::test {
namespace {

// Sums are taken in other orders where other tokens share the product, so that a bfloat16 may round to the other side.
constexpr double kRoundingBound = 0.06;

class CudaBackendCase : public CudaBackendTest, public testing::WithParamInterface<CudaCase> {
 protected:
  void SetUp() override {
    CudaBackendTest::SetUp();
    if (IsSkipped()) return;
    model_ = SmallModel(GetParam().tuned);
    ASSERT_NE(model_, nullptr);
    backend_ = Make(*model_, Options(GetParam().kv_dtype));
    ASSERT_NE(backend_, nullptr);
  }
  void TearDown() override { backend_.reset(); }

  std::unique_ptr<Model> model_;
  std::unique_ptr<Backend> backend_;
};

TEST_P(CudaBackendCase, APromptMayComeInChunks) {
  const FedSequence sequence{SomeIds(40), Blocks(40, 16), 0};
  const std::vector<Following> whole = FeedAll(*backend_, sequence, 40, 0);
  for (const std::int32_t chunk : {1, 7, 33}) {
    EXPECT_LT(LargestDifference(FeedAll(*backend_, sequence, chunk, 0), whole), kRoundingBound) << chunk;
  }
}

TEST_P(CudaBackendCase, RowsOfOneStepDoNotMix) {
  const std::vector<FedSequence> sequences = {
      {SomeIds(20), {3, 1}, 0}, {SomeIds(9), {5}, 0}, {SomeIds(33), {7, 2, 4}, 0}};
  std::vector<std::vector<Following>> alone;
  for (const FedSequence& sequence : sequences) alone.push_back(FeedAll(*backend_, sequence, 64, 0));
  // The first decodes while the second begins and the third goes on: decode rows come first on the device.
  std::vector<FedSequence> together = sequences;
  StepUnderTest step;
  step.Feed(&together[0], 19, 0, kNoLogprobs);
  step.Feed(&together[2], 25, 0, kNoLogprobs);
  step.Run(*backend_);
  step.Feed(&together[1], 9, 9, 0);
  step.Feed(&together[0], 1, 1, 0);
  step.Feed(&together[2], 8, 3, 0);
  const std::vector<std::vector<Following>> answers = step.Run(*backend_);
  EXPECT_LT(LargestDifference(answers[0], alone[1]), kRoundingBound);
  EXPECT_LT(LargestDifference(answers[1], {alone[0].back()}), kRoundingBound);
  EXPECT_LT(LargestDifference(answers[2], {alone[2].end() - 3, alone[2].end()}), kRoundingBound);
}

TEST_P(CudaBackendCase, ASequenceGoesOnFromBlocksThatAnotherFilled) {
  const std::vector<TokenId> ids = SomeIds(40);
  const std::vector<Following> expected = FeedAll(*backend_, {ids, {0, 1, 2}, 0}, 40, 0);
  FedSequence sharing{ids, {0, 1, 9}, 32};  // two full blocks are the other's
  StepUnderTest step;
  step.Feed(&sharing, 8, 8, 0);
  EXPECT_LT(LargestDifference(step.Run(*backend_)[0], {expected.end() - 8, expected.end()}), kRoundingBound);
}

TEST_P(CudaBackendCase, BlocksAreCopiedBeforeTheRowsWrite) {
  const std::vector<TokenId> ids = SomeIds(24);
  const std::vector<Following> expected = FeedAll(*backend_, {ids, {0, 1}, 0}, 24, 0);
  FedSequence original{ids, {4, 5}, 0};
  StepUnderTest step;
  step.Feed(&original, 20, 0, kNoLogprobs);
  step.Run(*backend_);
  // The partial block goes to two others, as where choices part; the original is written in the same step.
  FedSequence copy{ids, {4, 6}, 20};
  FedSequence later{ids, {4, 7}, 20};
  step.plan().block_copies = {{5, 6}, {5, 7}};
  step.Feed(&original, 4, 4, 0);
  step.Feed(&copy, 4, 4, 0);
  const std::vector<std::vector<Following>> answers = step.Run(*backend_);
  const std::vector<Following> end(expected.end() - 4, expected.end());
  EXPECT_LT(LargestDifference(answers[0], end), kRoundingBound);
  EXPECT_LT(LargestDifference(answers[1], end), kRoundingBound);
  step.Feed(&later, 4, 4, 0);
  EXPECT_LT(LargestDifference(step.Run(*backend_)[0], end), kRoundingBound);
}

TEST_P(CudaBackendCase, WhatWasSwappedOutComesBackAnywhere) {
  const std::vector<TokenId> ids = SomeIds(40);
  const std::vector<Following> expected = FeedAll(*backend_, {ids, {0, 1, 2}, 0}, 40, 0);
  FedSequence parked{ids, {3, 4, 5}, 0};
  FedSequence other{SomeIds(50), {3, 4, 5, 6}, 0};
  StepUnderTest step;
  step.Feed(&parked, 36, 0, kNoLogprobs);
  step.Run(*backend_);
  // Its blocks are another's in the very step that swaps them out.
  step.plan().swap_out = {{3, 2}, {4, 0}, {5, 3}};
  step.Feed(&other, 50, 0, kNoLogprobs);
  step.Run(*backend_);
  // One block goes out while three come in.
  parked.blocks = {9, 8, 7};
  step.plan().swap_out = {{6, 1}};
  step.plan().swap_in = {{9, 2}, {8, 0}, {7, 3}};
  step.Feed(&parked, 4, 4, 0);
  EXPECT_LT(LargestDifference(step.Run(*backend_)[0], {expected.end() - 4, expected.end()}), kRoundingBound);
  // And a step of copies alone.
  StepPlan copies;
  copies.swap_in = {{6, 1}};
  copies.step = 77;
  const StepResult result = RunPlan(*backend_, copies);
  EXPECT_EQ(result.step, 77);
  EXPECT_TRUE(result.logits.empty());
}

TEST_P(CudaBackendCase, AGraphComputesWhatItsKernelsCompute) {
  CudaBackendOptions options = Options(GetParam().kv_dtype);
  options.graphs = false;
  const std::unique_ptr<Backend> eager = Make(*model_, options);
  // Five rows: filled up to six in the graph, and their number falls from step to step.
  const auto run = [](Backend& backend) {
    std::vector<DrawnSequence> sequences;
    for (std::int32_t i = 0; i < 5; ++i) sequences.push_back(MakeDrawn(SomeIds(3 + i), {2 * i, 2 * i + 1}));
    for (int number = 0; number < 8; ++number) {
      StepPlan plan;
      for (DrawnSequence& sequence : sequences) AddDraw(&plan, &sequence);
      for (LogitRow& row : plan.logit_rows) row.top_logprobs = number % 3 - 1;
      const StepResult result = RunPlan(backend, plan);
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        sequences[i].history.push_back(result.logits[i].token);
        if (number % 3 < 2) continue;
        const LogitResult& logits = result.logits[i];
        EXPECT_EQ(result.top[static_cast<std::size_t>(logits.top_begin)].token_id, logits.token);
      }
      if (number > 3) sequences.pop_back();
    }
    std::vector<std::vector<TokenId>> histories;
    for (const DrawnSequence& sequence : sequences) histories.push_back(sequence.history);
    return histories;
  };
  EXPECT_EQ(run(*backend_), run(*eager));
}

// Draws for two sequences in the same steps, one after the other or with two steps in flight, the second of which feeds
// what the first draws.
std::vector<std::vector<TokenId>> DrawTogether(Backend& backend, bool ahead) {
  constexpr int kDraws = 12;
  SamplingSpec sampled;
  sampled.temperature = 1.0F;
  sampled.seed = 7;
  sampled.repetition_penalty = 1.5F;
  sampled.frequency_penalty = 0.5F;
  DrawnSequence sequences[] = {MakeDrawn(SomeIds(5), {0, 1}), MakeDrawn(SomeIds(11), {2, 3}, sampled)};
  // In turns the first or the second comes first, so that a row of logits is not where its token was drawn.
  const auto first = [](int number) { return number % 2; };
  StepPlan plans[2];
  const auto submit = [&](int number) {
    StepPlan& plan = plans[number % 2];
    plan.Clear();
    for (int row = 0; row < 2; ++row) {
      DrawnSequence& sequence = sequences[(first(number) + row) % 2];
      if (number > 0 && ahead) {
        AddDraw(&plan, &sequence, {kNoToken}, 1 - row);
      } else {
        AddDraw(&plan, &sequence);
      }
    }
    EXPECT_EQ(backend.Submit(plan), absl::OkStatus());
  };
  submit(0);
  for (int number = 0; number < kDraws; ++number) {
    if (ahead && number + 1 < kDraws) submit(number + 1);
    StepResult result;
    EXPECT_EQ(backend.Await(&result), absl::OkStatus());
    for (int row = 0; row < 2; ++row) {
      sequences[(first(number) + row) % 2].history.push_back(result.logits.at(static_cast<std::size_t>(row)).token);
    }
    if (!ahead && number + 1 < kDraws) submit(number + 1);
  }
  return {sequences[0].history, sequences[1].history};
}

TEST_P(CudaBackendCase, AStepAheadDrawsTheSameTokens) {
  EXPECT_EQ(backend_->info().max_steps_in_flight, 2);
  EXPECT_EQ(DrawTogether(*backend_, /*ahead=*/true), DrawTogether(*backend_, /*ahead=*/false));
}

TEST(CudaDevices, AreCountedWhereThereIsNoDriverToo) {
  const absl::StatusOr<int> devices = CountCudaDevices();
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_EQ(*devices == 0, emulation::NoDevice());
  EXPECT_TRUE(HasCudaBackend());
}

INSTANTIATE_TEST_SUITE_P(All, CudaBackendCase,
                         testing::Values(CudaCase{"Plain", false, KvDtype::kBf16},
                                         CudaCase{"PlainInt8", false, KvDtype::kInt8},
                                         CudaCase{"Tuned", true, KvDtype::kBf16},
                                         CudaCase{"TunedInt8", true, KvDtype::kInt8}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace berth::test
