#include "backend_harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace berth::test {

std::unique_ptr<Model> OpenModel(const std::string& path) {
  absl::StatusOr<std::unique_ptr<Model>> model = Model::Open(path);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

std::unique_ptr<Model> OpenModel(const GgufBuilder& builder) {
  const ScratchFile file(builder.Bytes());  // mapped: it may go while the model is open
  return OpenModel(file.path());
}

std::unique_ptr<Backend> MakeBackend(const Model& model, const CpuBackendOptions& options) {
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCpuBackend(model, options);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return backend.ok() ? *std::move(backend) : nullptr;
}

bool Following::operator==(const Following& other) const {
  const auto same = [](float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); };
  return same(logprob, other.logprob) && std::equal(top.begin(), top.end(), other.top.begin(), other.top.end(),
                                                    [&](const TopLogprob& a, const TopLogprob& b) {
                                                      return a.token_id == b.token_id && same(a.logprob, b.logprob);
                                                    });
}

void StepUnderTest::Feed(FedSequence* sequence, std::int32_t count, std::int32_t wanted, std::int32_t top) {
  StepRow row;
  row.first_position = sequence->stored;
  row.token_begin = static_cast<std::int32_t>(plan_.token_ids.size());
  row.num_tokens = count;
  row.block_begin = static_cast<std::int32_t>(plan_.block_ids.size());
  row.num_blocks = static_cast<std::int32_t>(sequence->blocks.size());
  plan_.rows.push_back(row);
  plan_.block_ids.insert(plan_.block_ids.end(), sequence->blocks.begin(), sequence->blocks.end());
  const auto begin = sequence->ids.begin() + sequence->stored;
  plan_.token_ids.insert(plan_.token_ids.end(), begin, begin + count);
  for (std::int32_t i = count - wanted; i < count; ++i) {
    LogitRow logits;
    logits.token_index = row.token_begin + i;
    const auto next = static_cast<std::size_t>(sequence->stored + i + 1);
    logits.target = next < sequence->ids.size() ? sequence->ids[next] : 0;
    logits.top_logprobs = top;
    plan_.logit_rows.push_back(logits);
  }
  sequence->stored += count;
  wanted_.push_back(wanted);
}

std::vector<std::vector<Following>> StepUnderTest::Run(Backend& backend) {
  ++plan_.step;
  EXPECT_TRUE(backend.Submit(plan_).ok());
  StepResult result;
  EXPECT_TRUE(backend.Await(&result).ok());
  EXPECT_EQ(result.step, plan_.step);
  EXPECT_EQ(result.logits.size(), plan_.logit_rows.size());
  std::vector<std::vector<Following>> answers;
  std::size_t next = 0;
  for (const std::int32_t wanted : wanted_) {
    std::vector<Following>& answer = answers.emplace_back();
    for (std::int32_t i = 0; i < wanted; ++i) {
      const LogitResult& from = result.logits[next];
      EXPECT_EQ(from.token, plan_.logit_rows[next].target);
      const auto top = result.top.begin() + from.top_begin;
      answer.push_back({from.logprob, {top, top + from.num_top}});
      ++next;
    }
  }
  plan_.Clear();
  wanted_.clear();
  return answers;
}

std::vector<BlockId> Blocks(std::int64_t tokens, std::int32_t block_tokens, BlockId first) {
  std::vector<BlockId> blocks(static_cast<std::size_t>(CeilDiv(tokens, block_tokens)));
  std::iota(blocks.begin(), blocks.end(), first);
  return blocks;
}

std::vector<Following> FeedAll(Backend& backend, FedSequence sequence, std::int32_t chunk, std::int32_t top) {
  StepUnderTest step;
  std::vector<Following> all;
  while (sequence.left() > 0) {
    const std::int32_t count = std::min(chunk, sequence.left());
    step.Feed(&sequence, count, count, top);
    const std::vector<std::vector<Following>> answers = step.Run(backend);
    all.insert(all.end(), answers.front().begin(), answers.front().end());
  }
  return all;
}

}  // namespace berth::test
