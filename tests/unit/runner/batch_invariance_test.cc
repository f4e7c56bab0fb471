// A sequence's bits are the same alone, batched, chunked, on other blocks, after a prefix hit, after being swapped out
// and in, and at any thread count.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "backend_harness.h"

namespace berth::test {
namespace {

constexpr std::int32_t kVocab = 300;
constexpr std::int32_t kTop = kVocab;  // every log-probability is compared

std::unique_ptr<Model> MakeModel() {
  TinyLlama spec;
  spec.hidden = 96;
  spec.heads = 6;
  spec.kv_heads = 2;
  spec.ffn = 160;
  spec.vocab_size = kVocab;
  spec.context_tokens = 700;
  spec.matrix_type = gguf_type::kQ4_1;
  return OpenModel(MakeTinyLlama(spec));
}

struct Setting {
  std::string name;
  cpu::CpuLevel level;
  KvDtype kv_dtype;
  std::int32_t block_tokens;
};

std::vector<Setting> Settings() {
  std::vector<Setting> settings;
  for (const cpu::CpuLevel level : {cpu::CpuLevel::kScalar, cpu::CpuLevel::kAvx2, cpu::CpuLevel::kAvx512Vnni}) {
    if (level > cpu::DetectCpuLevel()) continue;
    std::string name = cpu::CpuLevelName(level);
    std::erase(name, '-');
    settings.push_back({name + "Bf16", level, KvDtype::kBf16, 16});
    settings.push_back({name + "Int8", level, KvDtype::kInt8, 16});
    settings.push_back({name + "Float32", level, KvDtype::kFloat32, 64});
    if (level != cpu::DetectCpuLevel()) continue;
    settings.push_back({name + "Bf16TokenBlocks", level, KvDtype::kBf16, 1});
    settings.push_back({name + "Int8TokenBlocks", level, KvDtype::kInt8, 1});
  }
  return settings;
}

class BatchInvariance : public testing::TestWithParam<Setting> {
 protected:
  static constexpr std::int32_t kPoolTokens = 4096;

  void SetUp() override {
    model_ = MakeModel();
    ASSERT_NE(model_, nullptr);
    std::mt19937 random(5);
    // More than two attention chunks; the scalar level, which is slow, has to do with one and a bit.
    const bool scalar = GetParam().level == cpu::CpuLevel::kScalar;
    for (const std::size_t length : {scalar ? 270U : 530U, 41U, scalar ? 100U : 258U, 1U}) {
      std::vector<TokenId>& ids = texts_.emplace_back(length);
      for (TokenId& id : ids) id = static_cast<TokenId>(random() % kVocab);
    }
    const std::unique_ptr<Backend> backend = Make(1);
    for (const std::vector<TokenId>& ids : texts_) {
      alone_.push_back(FeedAll(*backend, OnFirstBlocks(ids), static_cast<std::int32_t>(ids.size()), kTop));
    }
  }

  std::unique_ptr<Backend> Make(int threads) const {
    CpuBackendOptions options;
    options.threads = threads;
    options.kv_dtype = GetParam().kv_dtype;
    options.compute = options.kv_dtype == KvDtype::kFloat32 ? ComputeMode::kFloat32 : ComputeMode::kDefault;
    const std::int32_t blocks = kPoolTokens / GetParam().block_tokens;
    options.pool = {blocks, GetParam().block_tokens, blocks};
    options.max_step_tokens = 600;
    options.level = GetParam().level;
    return MakeBackend(*model_, options);
  }

  FedSequence OnFirstBlocks(const std::vector<TokenId>& ids) const {
    return {ids, Blocks(static_cast<std::int64_t>(ids.size()), GetParam().block_tokens), 0};
  }

  // All texts as sequences on disjoint blocks in random places.
  std::vector<FedSequence> OnShuffledBlocks(std::mt19937& random) const {
    std::vector<BlockId> blocks = Blocks(kPoolTokens, GetParam().block_tokens);
    std::shuffle(blocks.begin(), blocks.end(), random);
    std::vector<FedSequence> sequences;
    for (const std::vector<TokenId>& ids : texts_) {
      const auto count = CeilDiv(static_cast<std::int64_t>(ids.size()), GetParam().block_tokens);
      sequences.push_back({ids, {blocks.end() - count, blocks.end()}, 0});
      blocks.resize(blocks.size() - static_cast<std::size_t>(count));
    }
    return sequences;
  }

  std::unique_ptr<Model> model_;
  std::vector<std::vector<TokenId>> texts_;
  std::vector<std::vector<Following>>
      alone_;  // by text: what follows each position, computed in one step on one thread
};

TEST_P(BatchInvariance, ChunksAndSingleTokensGiveTheBitsOfOneStep) {
  const std::unique_ptr<Backend> backend = Make(2);
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    for (const std::int32_t chunk : {1, 7, 16, 100}) {
      EXPECT_TRUE(FeedAll(*backend, OnFirstBlocks(texts_[i]), chunk, kTop) == alone_[i])
          << "text " << i << " in chunks of " << chunk;
    }
  }
}

TEST_P(BatchInvariance, ThreadCountsChangeNothing) {
  for (const int threads : {2, 3, 4, 7}) {
    const std::unique_ptr<Backend> backend = Make(threads);
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      EXPECT_TRUE(FeedAll(*backend, OnFirstBlocks(texts_[i]), 600, kTop) == alone_[i])
          << "text " << i << " on " << threads << " threads";
    }
    EXPECT_TRUE(FeedAll(*backend, OnFirstBlocks(texts_[0]), 11, kTop) == alone_[0]) << threads << " threads";
  }
}

TEST_P(BatchInvariance, RandomStepsOfAllSequencesTogetherGiveEachItsBits) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    std::mt19937 random(seed);
    const std::unique_ptr<Backend> backend = Make(1 + static_cast<int>(seed));
    std::vector<FedSequence> sequences = OnShuffledBlocks(random);
    std::vector<std::vector<Following>> got(sequences.size());
    StepUnderTest step;
    while (std::any_of(sequences.begin(), sequences.end(), [](const FedSequence& s) { return s.left() > 0; })) {
      std::vector<std::size_t> order(sequences.size());
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      std::vector<std::size_t> fed;
      for (const std::size_t i : order) {
        const std::int32_t left = sequences[i].left();
        if (left == 0 || (random() % 4 == 0 && !fed.empty())) continue;
        const bool decode = random() % 2 == 0;
        const std::int32_t count = decode ? 1 : 1 + static_cast<std::int32_t>(random() % std::min(left, 120));
        step.Feed(&sequences[i], count, count, kTop);
        fed.push_back(i);
      }
      const auto answers = step.Run(*backend);
      for (std::size_t row = 0; row < fed.size(); ++row) {
        got[fed[row]].insert(got[fed[row]].end(), answers[row].begin(), answers[row].end());
      }
    }
    EXPECT_TRUE(got == alone_) << "seed " << seed;
  }
}

TEST_P(BatchInvariance, APrefixHitGivesTheBitsOfComputingIt) {
  const std::unique_ptr<Backend> backend = Make(2);
  const std::int32_t block_tokens = GetParam().block_tokens;
  const FedSequence first = OnFirstBlocks(texts_[0]);
  FeedAll(*backend, first, 600, kNoLogprobs);

  // The same beginning, then another end; alone, and on the first sequence's blocks.
  const std::int32_t shared_blocks = 256 / block_tokens;
  const std::int32_t shared = shared_blocks * block_tokens;
  std::vector<TokenId> ids(texts_[0].begin(), texts_[0].begin() + shared);
  ids.insert(ids.end(), texts_[2].begin(), texts_[2].begin() + 60);
  FedSequence hit{ids, {first.blocks.begin(), first.blocks.begin() + shared_blocks}, shared};
  const std::vector<BlockId> own = Blocks(60, block_tokens, static_cast<BlockId>(first.blocks.size()));
  hit.blocks.insert(hit.blocks.end(), own.begin(), own.end());
  const std::vector<Following> after_hit = FeedAll(*backend, hit, 600, kTop);

  const std::unique_ptr<Backend> other = Make(1);
  const std::vector<Following> computed = FeedAll(*other, OnFirstBlocks(ids), 600, kTop);
  EXPECT_TRUE(std::equal(after_hit.begin(), after_hit.end(), computed.begin() + shared, computed.end()));
}

TEST_P(BatchInvariance, AForkThatCopiesThePartialBlockGivesTheBitsOfItsOwnRun) {
  constexpr std::int32_t kCut = 250;
  constexpr std::int32_t kMore = 20;
  const std::unique_ptr<Backend> backend = Make(2);
  const std::int32_t block_tokens = GetParam().block_tokens;
  FedSequence original = OnFirstBlocks({texts_[0].begin(), texts_[0].begin() + kCut + kMore});
  StepUnderTest step;
  step.Feed(&original, kCut, 1, kTop);
  step.Run(*backend);

  // The fork shares the full blocks; the partial one is copied in the step in which both go on and the original writes.
  const std::int32_t full = kCut / block_tokens;
  FedSequence fork = original;
  const std::vector<BlockId> own =
      Blocks(kCut + kMore - full * block_tokens, block_tokens, static_cast<BlockId>(original.blocks.size()));
  fork.blocks.resize(static_cast<std::size_t>(full));
  fork.blocks.insert(fork.blocks.end(), own.begin(), own.end());
  if (kCut % block_tokens != 0) {
    step.plan().block_copies.push_back({original.blocks[static_cast<std::size_t>(full)], own.front()});
  }
  step.Feed(&original, kMore, kMore, kTop);
  step.Feed(&fork, kMore, kMore, kTop);
  for (const std::vector<Following>& answers : step.Run(*backend)) {
    // The last position is followed by another token here than in the whole text.
    EXPECT_TRUE(std::equal(answers.begin(), answers.end() - 1, alone_[0].begin() + kCut));
  }
}

TEST_P(BatchInvariance, RecomputingOnBlocksThatOthersUsedGivesTheSameBits) {
  std::mt19937 random(9);
  const std::unique_ptr<Backend> backend = Make(2);
  for (int round = 0; round < 3; ++round) {
    std::vector<FedSequence> sequences = OnShuffledBlocks(random);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      EXPECT_TRUE(FeedAll(*backend, sequences[i], 50, kTop) == alone_[i]) << "round " << round << " text " << i;
    }
  }
}

// Sequences that share too few blocks: what each holds is swapped out now and then, others write where it lay, and it
// is swapped in elsewhere.
class SwappingSequences {
 public:
  SwappingSequences(const std::vector<std::vector<TokenId>>& texts, std::int32_t block_tokens, std::int32_t blocks,
                    unsigned seed)
      : block_tokens_(block_tokens), random_(seed), free_(static_cast<std::size_t>(blocks)) {
    std::iota(free_.begin(), free_.end(), 0);
    for (const std::vector<TokenId>& ids : texts) {
      sequences_.push_back({ids, {}, 0});
      host_blocks_.emplace_back();
      const std::vector<BlockId> host = Blocks(static_cast<std::int64_t>(ids.size()), block_tokens, host_end_);
      host_end_ += static_cast<BlockId>(host.size());
      free_host_.insert(free_host_.end(), host.begin(), host.end());
    }
    std::shuffle(free_host_.begin(), free_host_.end(), random_);
    got_.resize(texts.size());
  }

  bool done() const {
    return std::none_of(sequences_.begin(), sequences_.end(), [](const FedSequence& s) { return s.left() > 0; });
  }
  int swaps_in() const { return swaps_in_; }
  const std::vector<std::vector<Following>>& got() const { return got_; }

  void RunStep(Backend& backend) {
    StepUnderTest step;
    std::vector<BlockId> freed;  // by this step's swaps: for its rows, not for what it swaps in
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      if (!host_blocks_[i].empty() && random_() % 2 == 0) {
        SwapIn(i, &step.plan());
      } else if (!sequences_[i].blocks.empty() && random_() % 3 == 0) {
        SwapOut(i, &step.plan(), &freed);
      }
    }
    free_.insert(free_.end(), freed.begin(), freed.end());
    free_host_.insert(free_host_.end(), freed_host_.begin(), freed_host_.end());
    freed_host_.clear();
    std::vector<std::size_t> fed;
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      if (host_blocks_[i].empty() && Feed(i, &step)) fed.push_back(i);
    }
    if (fed.empty() && step.plan().swap_out.empty() && step.plan().swap_in.empty()) return;
    const auto answers = step.Run(backend);
    for (std::size_t row = 0; row < fed.size(); ++row) {
      got_[fed[row]].insert(got_[fed[row]].end(), answers[row].begin(), answers[row].end());
    }
    std::shuffle(free_.begin(), free_.end(), random_);
  }

 private:
  void SwapOut(std::size_t i, StepPlan* plan, std::vector<BlockId>* freed) {
    for (const BlockId block : sequences_[i].blocks) {
      plan->swap_out.push_back({block, free_host_.back()});
      host_blocks_[i].push_back(free_host_.back());
      free_host_.pop_back();
      freed->push_back(block);
    }
    sequences_[i].blocks.clear();
  }

  void SwapIn(std::size_t i, StepPlan* plan) {
    if (free_.size() < host_blocks_[i].size()) return;
    for (const BlockId host_block : host_blocks_[i]) {
      plan->swap_in.push_back({free_.back(), host_block});
      sequences_[i].blocks.push_back(free_.back());
      free_.pop_back();
    }
    freed_host_.insert(freed_host_.end(), host_blocks_[i].begin(), host_blocks_[i].end());
    host_blocks_[i].clear();
    ++swaps_in_;
  }

  bool Feed(std::size_t i, StepUnderTest* step) {
    FedSequence& sequence = sequences_[i];
    const auto room = static_cast<std::int64_t>(sequence.blocks.size() + free_.size()) * block_tokens_;
    const auto most = std::min<std::int64_t>({sequence.left(), room - sequence.stored, 40});
    if (most <= 0) return false;
    const auto count = 1 + static_cast<std::int32_t>(random_() % static_cast<unsigned>(most));
    const auto needed = static_cast<std::size_t>(CeilDiv(sequence.stored + count, block_tokens_));
    for (; sequence.blocks.size() < needed; free_.pop_back()) sequence.blocks.push_back(free_.back());
    step->Feed(&sequence, count, count, kTop);
    return true;
  }

  const std::int32_t block_tokens_;
  std::mt19937 random_;
  std::vector<BlockId> free_;
  std::vector<BlockId> free_host_;
  std::vector<BlockId> freed_host_;  // by this step: for the next one
  BlockId host_end_ = 0;
  std::vector<FedSequence> sequences_;
  std::vector<std::vector<BlockId>> host_blocks_;  // by sequence: where it lies while swapped out
  std::vector<std::vector<Following>> got_;
  int swaps_in_ = 0;
};

TEST_P(BatchInvariance, ASequenceSwappedOutAndInElsewhereGoesOnWithItsBits) {
  const auto longest = static_cast<std::int64_t>(texts_[0].size());
  const auto blocks = static_cast<std::int32_t>(CeilDiv(longest + 64, GetParam().block_tokens));
  for (const unsigned seed : {1U, 2U, 3U}) {
    const std::unique_ptr<Backend> backend = Make(static_cast<int>(seed));
    SwappingSequences sequences(texts_, GetParam().block_tokens, blocks, seed);
    for (int step = 0; step < 1000 && !sequences.done(); ++step) sequences.RunStep(*backend);
    EXPECT_TRUE(sequences.got() == alone_) << "seed " << seed;
    EXPECT_GT(sequences.swaps_in(), 5) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(All, BatchInvariance, testing::ValuesIn(Settings()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace berth::test
