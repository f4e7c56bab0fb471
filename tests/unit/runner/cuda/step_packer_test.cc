// How a step is laid out for the device.
#include "runner/cuda/step_packer.h"

#include <gtest/gtest.h>

#include <vector>

#include "runner/cuda/sampling_packer.h"

namespace berth::test {
namespace {

constexpr std::int32_t kBlockTokens = 128;
constexpr std::int32_t kMaxBlocks = 4;  // two chunks of 256 tokens
const StepLimits kLimits = {.vocab_size = 100,
                            .max_context_tokens = 512,
                            .max_step_tokens = 64,
                            .pool = {32, kBlockTokens, 0},
                            .carried_tokens = true};

CudaShape Shape(bool tuned) {
  CudaShape shape;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.vocab_size = 100;
  shape.pool = kLimits.pool;
  shape.max_step_tokens = 64;
  shape.max_rows = 8;
  shape.max_logit_rows = 72;
  shape.max_top_logprobs = 5;
  shape.logit_group_rows = 4;
  shape.max_chunks = 2;
  shape.max_step_ids = 10;
  shape.tuned_attention = tuned;
  return shape;
}

const SamplingSpec kGreedy = [] {
  SamplingSpec spec;
  spec.temperature = 0.0F;
  return spec;
}();

void AddRow(StepPlan* plan, std::int32_t first_position, const std::vector<TokenId>& tokens,
            const std::vector<BlockId>& blocks) {
  StepRow row;
  row.first_position = first_position;
  row.token_begin = static_cast<std::int32_t>(plan->token_ids.size());
  row.num_tokens = static_cast<std::int32_t>(tokens.size());
  row.block_begin = static_cast<std::int32_t>(plan->block_ids.size());
  row.num_blocks = static_cast<std::int32_t>(blocks.size());
  plan->rows.push_back(row);
  plan->token_ids.insert(plan->token_ids.end(), tokens.begin(), tokens.end());
  plan->block_ids.insert(plan->block_ids.end(), blocks.begin(), blocks.end());
}

void AddDrawAt(StepPlan* plan, std::int32_t token) {
  LogitRow row;
  row.token_index = token;
  row.sampling.spec = &kGreedy;
  plan->logit_rows.push_back(row);
}

// The arrays of a step in memory of their own.
struct Packed {
  Packed(const CudaShape& shape, const StepCounts& size) : counts(size) {
    MemoryLayout counting(nullptr, kStepAlignment);
    LayOutStep(shape, counts, counting);
    memory.resize(counting.bytes() / sizeof(std::max_align_t) + 1);
    MemoryLayout layout(reinterpret_cast<std::byte*>(memory.data()), kStepAlignment);
    arrays = LayOutStep(shape, counts, layout);
  }

  template <typename T>
  static std::vector<T> List(const T* values, std::int32_t count) {
    return {values, values + count};
  }

  StepCounts counts;
  std::vector<std::max_align_t> memory;
  StepArrays arrays;
};

using Ids = std::vector<std::int32_t>;

// A chunk of a prompt, a decode row, a chunk, a decode row.
StepPlan MixedPlan() {
  StepPlan plan;
  AddRow(&plan, 0, {10, 11, 12}, {7});
  AddRow(&plan, 300, {20}, {3, 4, 5});
  AddRow(&plan, 127, {30, 31}, {8, 9, 1});  // one block more than it uses
  AddRow(&plan, 5, {40}, {2});
  AddDrawAt(&plan, 2);
  AddDrawAt(&plan, 3);
  AddDrawAt(&plan, 5);
  AddDrawAt(&plan, 6);
  return plan;
}

TEST(StepPacker, RowsThatDecodeComeFirst) {
  const StepPlan plan = MixedPlan();
  StepInputs inputs(kLimits);
  inputs.Pack(plan);
  const CudaShape shape = Shape(/*tuned=*/true);
  StepPacker packer(shape);
  Packed packed(shape, packer.Count(inputs));
  EXPECT_EQ(packed.counts.tokens, 7);
  EXPECT_EQ(packed.counts.rows, 4);
  EXPECT_EQ(packed.counts.decode_rows(), 2);
  EXPECT_EQ(packed.counts.tiles, 2);
  EXPECT_EQ(packed.counts.chunks, 2) << "301 tokens";
  packer.Write(inputs, packed.counts, packed.arrays);
  const StepArrays& arrays = packed.arrays;
  EXPECT_EQ(Packed::List(arrays.token_ids, 7), (Ids{20, 40, 10, 11, 12, 30, 31}));
  EXPECT_EQ(Packed::List(arrays.positions, 7), (Ids{300, 5, 0, 1, 2, 127, 128}));
  EXPECT_EQ(Packed::List(arrays.slots, 7), (std::vector<std::int64_t>{5 * 128 + 44, 2 * 128 + 5, 7 * 128, 7 * 128 + 1,
                                                                      7 * 128 + 2, 8 * 128 + 127, 9 * 128}));
  EXPECT_EQ(Packed::List(arrays.kv_lengths, 4), (Ids{301, 6, 3, 129}));
  EXPECT_EQ(Packed::List(arrays.block_tables, 4 * kMaxBlocks), (Ids{3, 4, 5, 0, 2, 0, 0, 0, 7, 0, 0, 0, 8, 9, 0, 0}));
  EXPECT_EQ(Packed::List(arrays.token_begins, 3), (Ids{2, 5, 7}));
  EXPECT_EQ(arrays.tiles[1].sequence, 1);
  EXPECT_EQ(arrays.tiles[1].first_row, 0);
  EXPECT_EQ(Packed::List(arrays.logit_tokens, 4), (Ids{4, 0, 6, 1})) << "in the plan's order";
}

TEST(StepPacker, ALongChunkHasSeveralTiles) {
  StepPlan plan;
  std::vector<TokenId> tokens(64, 1);
  tokens.pop_back();
  AddRow(&plan, 0, {1}, {0});
  AddRow(&plan, 0, tokens, {1});
  StepInputs inputs(kLimits);
  inputs.Pack(plan);
  CudaShape shape = Shape(/*tuned=*/true);
  shape.heads = 12;  // 63 · 6 rows of queries
  StepPacker packer(shape);
  Packed packed(shape, packer.Count(inputs));
  ASSERT_EQ(packed.counts.tiles, 3);
  EXPECT_LE(packed.counts.tiles, MostOf(shape).tiles);
  packer.Write(inputs, packed.counts, packed.arrays);
  for (std::int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(packed.arrays.tiles[i].sequence, 0);
    EXPECT_EQ(packed.arrays.tiles[i].first_row, i * cuda::kPrefillTileRows);
  }
}

TEST(StepPacker, PlainAttentionIsToldOfEachToken) {
  const StepPlan plan = MixedPlan();
  StepInputs inputs(kLimits);
  inputs.Pack(plan);
  const CudaShape shape = Shape(/*tuned=*/false);
  StepPacker packer(shape);
  Packed packed(shape, packer.Count(inputs));
  EXPECT_EQ(packed.counts.tiles, 0);
  packer.Write(inputs, packed.counts, packed.arrays);
  EXPECT_EQ(Packed::List(packed.arrays.token_rows, 7), (Ids{0, 1, 2, 2, 2, 3, 3}));
  EXPECT_EQ(Packed::List(packed.arrays.token_lengths, 7), (Ids{301, 6, 1, 2, 3, 128, 129}));
}

TEST(StepPacker, RowsThatFillUpABatchHaveNoEffect) {
  StepPlan plan;
  AddRow(&plan, 5, {40}, {2});
  AddDrawAt(&plan, 0);
  StepInputs inputs(kLimits);
  inputs.Pack(plan);
  EXPECT_TRUE(StepPacker::OnlyDecodes(inputs));
  for (const bool tuned : {false, true}) {
    const CudaShape shape = Shape(tuned);
    StepPacker packer(shape);
    StepCounts size = packer.Count(inputs);
    size.rows = size.tokens = size.logit_rows = 3;
    Packed packed(shape, size);
    packer.Write(inputs, size, packed.arrays);
    EXPECT_EQ(Packed::List(packed.arrays.slots, 3), (std::vector<std::int64_t>{2 * 128 + 5, -1, -1}));
    EXPECT_EQ(Packed::List(packed.arrays.kv_lengths, 3), (Ids{6, 0, 0}));
    EXPECT_EQ(Packed::List(packed.arrays.token_ids, 3), (Ids{40, 0, 0}));
    EXPECT_EQ(Packed::List(packed.arrays.logit_tokens, 3), (Ids{0, 0, 0}));
    if (!tuned) {
      EXPECT_EQ(Packed::List(packed.arrays.token_lengths, 3), (Ids{6, 0, 0}));
    }
    SamplingPacker sampling(shape);
    sampling.Pack(inputs, size, packed.arrays.logit_tokens, packed.arrays.sampling);
    ASSERT_EQ(sampling.groups().size(), 1U);
    EXPECT_EQ(sampling.groups()[0].rows, 3);
    EXPECT_EQ(packed.arrays.sampling[2].target, kNoToken);
    EXPECT_EQ(packed.arrays.sampling[2].top_logprobs, kNoLogprobs);
  }
}

TEST(StepPacker, CarriedTokensMoveWithTheirRows) {
  StepInputs inputs(kLimits);
  const StepPlan before = MixedPlan();
  inputs.Pack(before);
  StepPlan plan;
  AddRow(&plan, 3, {13, 14}, {7});
  AddRow(&plan, 301, {kNoToken}, {3, 4, 5});
  AddRow(&plan, 6, {kNoToken}, {2});
  plan.carried_tokens = {{2, 1}, {3, 3}};
  SamplingSpec penalised = kGreedy;
  penalised.presence_penalty = 1.0F;
  const std::vector<TokenId> history = {1, 2};
  AddDrawAt(&plan, 1);
  AddDrawAt(&plan, 3);
  for (LogitRow& row : plan.logit_rows) {
    row.sampling.spec = &penalised;
    row.sampling.history = history;
  }
  inputs.Pack(plan);
  const CudaShape shape = Shape(/*tuned=*/true);
  StepPacker packer(shape);
  Packed packed(shape, packer.Count(inputs));
  packer.Write(inputs, packed.counts, packed.arrays);
  EXPECT_EQ(packed.counts.carried, 2);
  EXPECT_EQ(Packed::List(packed.arrays.carried_tokens, 2), (Ids{0, 1}));
  EXPECT_EQ(Packed::List(packed.arrays.carried_rows, 2), (Ids{1, 3}));
  SamplingPacker sampling(shape);
  sampling.Pack(inputs, packed.counts, packed.arrays.logit_tokens, packed.arrays.sampling);
  EXPECT_EQ(packed.arrays.sampling[0].last_token, -1);
  EXPECT_EQ(packed.arrays.sampling[0].position, 2);
  EXPECT_EQ(packed.arrays.sampling[1].last_token, 1) << "its history ends with what the step before draws";
  EXPECT_EQ(packed.arrays.sampling[1].position, 3);
}

TEST(StepPacker, OtherStepsHaveNoGraph) {
  StepInputs inputs(kLimits);
  StepPlan plan = MixedPlan();
  inputs.Pack(plan);
  EXPECT_FALSE(StepPacker::OnlyDecodes(inputs)) << "a chunk";
  plan.Clear();
  AddRow(&plan, 5, {40}, {2});
  inputs.Pack(plan);
  EXPECT_FALSE(StepPacker::OnlyDecodes(inputs)) << "nothing is drawn";
  AddDrawAt(&plan, 0);
  AddDrawAt(&plan, 0);
  inputs.Pack(plan);
  EXPECT_FALSE(StepPacker::OnlyDecodes(inputs)) << "two draws of a row";
}

class SamplingPackerTest : public testing::Test {
 protected:
  // Logit rows of one position.
  void Pack(const std::vector<LogitRow>& rows) {
    plan_.Clear();
    AddRow(&plan_, 5, {40}, {2});
    plan_.logit_rows = rows;
    inputs_.Pack(plan_);
    StepPacker packer(shape_);
    const StepCounts counts = packer.Count(inputs_);
    rows_.resize(rows.size());
    const Ids logit_tokens(rows.size());
    packer_.Pack(inputs_, counts, logit_tokens.data(), rows_.data());
  }
  static LogitRow Row(const SamplingSpec& spec, std::span<const TokenId> history,
                      std::span<const TokenId> banned = {}) {
    LogitRow row;
    row.sampling.spec = &spec;
    row.sampling.history = history;
    row.sampling.banned = banned;
    return row;
  }
  Ids IdsOf(std::size_t group, const cuda::SamplingIds& ids) const {
    const auto begin = packer_.ids().begin() + packer_.groups()[group].ids_begin + ids.begin;
    return {begin, begin + ids.count};
  }

  const CudaShape shape_ = Shape(/*tuned=*/true);
  StepPlan plan_;
  StepInputs inputs_{kLimits};
  SamplingPacker packer_{shape_};
  std::vector<cuda::SamplingRow> rows_;
};

TEST_F(SamplingPackerTest, ARowNamesWhatItsSpecNeeds) {
  SamplingSpec spec;
  spec.temperature = 0.7F;
  spec.top_k = 3;
  spec.seed = 99;
  spec.logit_bias = {{4, 1.5F}, {9, -2.0F}};
  const std::vector<TokenId> history = {1, 2, 3};
  const std::vector<TokenId> banned = {8};
  SamplingSpec penalised = spec;
  penalised.repetition_penalty = 1.2F;
  penalised.logit_bias.clear();
  LogitRow first = Row(spec, history, banned);
  first.top_logprobs = 2;
  LogitRow second = Row(penalised, history);
  second.sampling.prompt_tokens = 2;
  second.top_logprobs = 0;
  LogitRow target;
  target.target = 42;
  target.top_logprobs = 3;
  Pack({first, second, target});
  ASSERT_EQ(packer_.groups().size(), 1U);
  EXPECT_EQ(packer_.groups()[0].num_biases, 2);
  EXPECT_EQ(IdsOf(0, rows_[0].bias), (Ids{4, 9}));
  EXPECT_EQ(packer_.biases()[static_cast<std::size_t>(rows_[0].bias.begin) + 1], -2.0F);
  EXPECT_EQ(IdsOf(0, rows_[0].banned), Ids{8});
  EXPECT_EQ(rows_[0].history.count, 0) << "nobody reads it";
  EXPECT_EQ(rows_[0].position, 3);
  EXPECT_EQ(rows_[0].seed, 99U);
  EXPECT_EQ(IdsOf(0, rows_[1].history), (Ids{1, 2, 3}));
  EXPECT_EQ(rows_[1].prompt_tokens, 2);
  EXPECT_EQ(rows_[2].target, 42);
  EXPECT_EQ(rows_[0].top_begin, 0);
  EXPECT_EQ(rows_[1].top_begin, 2);
  EXPECT_EQ(rows_[2].top_begin, 2);
  EXPECT_EQ(packer_.top_entries(), 5);
}

TEST_F(SamplingPackerTest, RowsWhoseLogitsOrIdsDoNotFitTogetherAreInGroups) {
  SamplingSpec penalised;
  penalised.presence_penalty = 1.0F;
  const std::vector<TokenId> history = {1, 2, 3, 4};
  Pack(std::vector<LogitRow>(5, Row(penalised, history)));  // room for 10 ids: two histories each
  ASSERT_EQ(packer_.groups().size(), 3U);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(IdsOf(i / 2, rows_[i].history), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(packer_.groups()[2].first_row, 4);
  EXPECT_EQ(packer_.groups()[2].rows, 1);
  EXPECT_EQ(packer_.groups()[2].num_ids, 4);
  EXPECT_EQ(packer_.groups()[1].ids_begin, 8);
  Pack(std::vector<LogitRow>(9, Row(kGreedy, {})));  // four rows of logits at once
  ASSERT_EQ(packer_.groups().size(), 3U);
  EXPECT_EQ(packer_.groups()[2].rows, 1);
}

}  // namespace
}  // namespace berth::test
