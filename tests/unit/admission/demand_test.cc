#include "admission/demand.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace berth {
namespace {

struct Row {
  std::int64_t prompt_tokens;
  std::int64_t max_output_tokens;
  std::int64_t n;
  std::int64_t block_tokens;
  std::int64_t worst_blocks;
};

TEST(WorstBlocks, FollowsTheFormula) {
  constexpr Row kRows[] = {
      {1, 1, 1, 16, 1},
      {16, 1, 1, 16, 1},
      {17, 1, 1, 16, 2},
      {17, 1, 8, 16, 2},  // one output token: forks share even the partial block
      {16, 2, 1, 16, 2},  // the first output token is stored, the second is not
      {15, 2, 1, 16, 1},
      {15, 3, 1, 16, 2},
      {1, 16, 1, 16, 1},  // 1 + 16 - 1 tokens fill the block exactly
      {1, 17, 1, 16, 2},
      {16, 17, 4, 16, 5},   // 1 shared + 4 · 1
      {20, 30, 3, 16, 10},  // T = 49: 1 shared + 3 · 3
      {1000, 256, 1, 16, 79},
      {5, 4, 2, 1, 11},  // 5 shared + 2 · 3
      {1, 1LL << 40, 2, 256, 1LL << 33},
      {1LL << 59, 1LL << 59, 1, 1, (1LL << 60) - 1},
  };
  for (const Row& row : kRows) {
    EXPECT_EQ(WorstBlocks(row.prompt_tokens, row.max_output_tokens, row.n, row.block_tokens), row.worst_blocks)
        << "P=" << row.prompt_tokens << " O=" << row.max_output_tokens << " n=" << row.n << " B=" << row.block_tokens;
  }
}

// Grows n forks of one prompt token by token, each on a block table of its own, and counts distinct blocks. A fork
// shares the prompt's blocks until it stores its first token, when it needs a copy of the partial one; every fork needs
// its own, because the shared original stays as long as some other fork still reads it.
std::int64_t SimulatedPeak(std::int64_t prompt_tokens, std::int64_t output_tokens, std::int64_t n,
                           std::int64_t block_tokens) {
  std::int64_t next_block = 0;
  std::vector<std::int64_t> prompt_table;
  for (std::int64_t token = 0; token < prompt_tokens; ++token) {
    if (token % block_tokens == 0) prompt_table.push_back(next_block++);
  }
  std::vector<std::vector<std::int64_t>> tables(static_cast<std::size_t>(n), prompt_table);
  const auto live = [&] {
    std::set<std::int64_t> blocks;
    for (const auto& table : tables) blocks.insert(table.begin(), table.end());
    return static_cast<std::int64_t>(blocks.size());
  };
  const auto shared = [&](std::int64_t block) {
    return std::count_if(tables.begin(), tables.end(), [&](const auto& table) {
             return std::find(table.begin(), table.end(), block) != table.end();
           }) > 1;
  };
  std::int64_t peak = live();
  for (std::int64_t step = 0; step + 1 < output_tokens; ++step) {  // the last token is never stored
    const std::int64_t position = prompt_tokens + step;
    for (auto& table : tables) {
      if (position % block_tokens == 0) {
        table.push_back(next_block++);
      } else if (shared(table.back())) {
        table.back() = next_block++;
      }
    }
    peak = std::max(peak, live());
  }
  return peak;
}

TEST(WorstBlocks, IsExactlyWhatForkedBlockTablesComeToHold) {
  for (std::int64_t block_tokens = 1; block_tokens <= 5; ++block_tokens) {
    for (std::int64_t prompt_tokens = 1; prompt_tokens <= 12; ++prompt_tokens) {
      for (std::int64_t output_tokens = 1; output_tokens <= 12; ++output_tokens) {
        for (std::int64_t n = 1; n <= 4; ++n) {
          ASSERT_EQ(WorstBlocks(prompt_tokens, output_tokens, n, block_tokens),
                    SimulatedPeak(prompt_tokens, output_tokens, n, block_tokens))
              << "P=" << prompt_tokens << " O=" << output_tokens << " n=" << n << " B=" << block_tokens;
        }
      }
    }
  }
}

TEST(WorstBlocksDeathTest, NothingToReserveForIsABugOfTheCaller) {
  EXPECT_DEATH(WorstBlocks(0, 1, 1, 16), "check failed");
  EXPECT_DEATH(WorstBlocks(1, 0, 1, 16), "check failed");
  EXPECT_DEATH(WorstBlocks(1, 1, 0, 16), "check failed");
  EXPECT_DEATH(WorstBlocks(1, 1, 1, 0), "check failed");
}

}  // namespace
}  // namespace berth
