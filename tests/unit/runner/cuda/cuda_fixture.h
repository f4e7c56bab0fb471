// A CUDA backend, on the emulation or on a GPU, small models for it, and sequences that go on with what is drawn.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "../backend_harness.h"
#include "emulation/device_array.h"
#include "runner/cuda/cuda_backend.h"

#ifdef BERTH_CUDA_EMULATED
#include "emulation/fixture.h"
#endif

namespace berth::test {

#ifdef BERTH_CUDA_EMULATED
using DeviceTest = emulation::EmulationTest;
#else
class DeviceTest : public testing::Test {
 protected:
  void SetUp() override { BERTH_REQUIRE_DEVICE(); }
};
#endif

// Its prompt, then what was drawn.
struct DrawnSequence {
  std::vector<TokenId> history;
  std::vector<BlockId> blocks;
  SamplingSpec spec;
  std::int32_t stored = 0;
  std::int32_t prompt_tokens = 0;
};

inline SamplingSpec Greedy() {
  SamplingSpec spec;
  spec.temperature = 0.0F;
  return spec;
}

inline std::vector<TokenId> SomeIds(std::int32_t count, std::int32_t vocab_size = 320) {
  std::vector<TokenId> ids;
  for (std::int32_t i = 0; i < count; ++i) ids.push_back((i * 37 + 5) % vocab_size);
  return ids;
}

inline DrawnSequence MakeDrawn(std::vector<TokenId> prompt, std::vector<BlockId> blocks, SamplingSpec spec = Greedy()) {
  DrawnSequence sequence;
  sequence.prompt_tokens = static_cast<std::int32_t>(prompt.size());
  sequence.history = std::move(prompt);
  sequence.history.reserve(256);  // the plan borrows it
  sequence.blocks = std::move(blocks);
  sequence.spec = std::move(spec);
  return sequence;
}

// Adds a row of `tokens` to the plan and a draw behind it; kNoToken is the token that logit row `carried_from` of the
// step before draws.
inline void AddDraw(StepPlan* plan, DrawnSequence* sequence, const std::vector<TokenId>& tokens,
                    std::int32_t carried_from = 0) {
  StepRow row;
  row.first_position = sequence->stored;
  row.token_begin = static_cast<std::int32_t>(plan->token_ids.size());
  row.num_tokens = static_cast<std::int32_t>(tokens.size());
  row.block_begin = static_cast<std::int32_t>(plan->block_ids.size());
  row.num_blocks = static_cast<std::int32_t>(sequence->blocks.size());
  plan->rows.push_back(row);
  plan->block_ids.insert(plan->block_ids.end(), sequence->blocks.begin(), sequence->blocks.end());
  plan->token_ids.insert(plan->token_ids.end(), tokens.begin(), tokens.end());
  if (tokens.back() == kNoToken) {
    plan->carried_tokens.push_back({static_cast<std::int32_t>(plan->token_ids.size()) - 1, carried_from});
  }
  LogitRow draw;
  draw.token_index = row.token_begin + row.num_tokens - 1;
  draw.sampling.spec = &sequence->spec;
  draw.sampling.history = sequence->history;
  draw.sampling.prompt_tokens = sequence->prompt_tokens;
  plan->logit_rows.push_back(draw);
  sequence->stored += row.num_tokens;
}

// All that is not stored yet.
inline void AddDraw(StepPlan* plan, DrawnSequence* sequence) {
  AddDraw(plan, sequence, {sequence->history.begin() + sequence->stored, sequence->history.end()});
}

inline StepResult RunPlan(Backend& backend, const StepPlan& plan) {
  const absl::Status submitted = backend.Submit(plan);
  EXPECT_TRUE(submitted.ok()) << submitted;
  StepResult result;
  if (!submitted.ok()) return result;
  const absl::Status awaited = backend.Await(&result);
  EXPECT_TRUE(awaited.ok()) << awaited;
  return result;
}

// Draws `count` tokens of the sequence alone, a step each.
inline void DrawAlone(Backend& backend, DrawnSequence* sequence, int count) {
  for (int i = 0; i < count; ++i) {
    StepPlan plan;
    AddDraw(&plan, sequence);
    sequence->history.push_back(RunPlan(backend, plan).logits.at(0).token);
  }
}

// The largest distance between the log-probabilities of the same ids.
inline double LargestDifference(const std::vector<Following>& a, const std::vector<Following>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(static_cast<double>(a[i].logprob) - static_cast<double>(b[i].logprob));
    worst = std::isnan(difference) ? HUGE_VAL : std::max(worst, difference);
  }
  return worst;
}

// Which kernels of attention a model takes, and how K and V are stored.
struct CudaCase {
  const char* name;
  bool tuned;
  KvDtype kv_dtype;
};

class CudaBackendTest : public DeviceTest {
 protected:
  static CudaBackendOptions Options(KvDtype kv_dtype = KvDtype::kBf16) {
    CudaBackendOptions options;
    options.kv_dtype = kv_dtype;
    options.pool = {16, 16, 4};
    options.max_step_tokens = 64;
    options.max_sequences = 8;
    return options;
  }

  // Two layers; heads of 16 elements, or of 64.
  static std::unique_ptr<Model> SmallModel(bool tuned = false, std::uint32_t type = gguf_type::kBF16) {
    TinyLlama spec;
    spec.matrix_type = type;
    spec.hidden = tuned ? 256 : 64;
    return OpenModel(MakeTinyLlama(spec));
  }

  static std::unique_ptr<Backend> Make(const Model& model, const CudaBackendOptions& options) {
    absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCudaBackend(model, options);
    EXPECT_TRUE(backend.ok()) << backend.status();
    return backend.ok() ? *std::move(backend) : nullptr;
  }
};

}  // namespace berth::test
