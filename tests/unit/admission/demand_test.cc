#include "admission/demand.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

TEST(WorstBlocks, IsTheFormulaOfTheDesign) {
  EXPECT_EQ(WorstBlocks(1, 1, 1, 16), 1);
  EXPECT_EQ(WorstBlocks(16, 1, 1, 16), 1);
  EXPECT_EQ(WorstBlocks(17, 1, 1, 16), 2);
  EXPECT_EQ(WorstBlocks(16, 2, 1, 16), 2);
  // The last sampled token is never stored.
  EXPECT_EQ(WorstBlocks(10, 7, 1, 16), 1);
  EXPECT_EQ(WorstBlocks(10, 8, 1, 16), 2);
}

TEST(WorstBlocks, ChargesThePromptOnceAndTailsForEachChoice) {
  EXPECT_EQ(WorstBlocks(10, 7, 3, 4), 2 + 3 * 2);
  EXPECT_EQ(WorstBlocks(8, 1, 5, 4), 2) << "one output token stores nothing beyond the prompt";
}

// Count by hand what n sequences hold at their end.
TEST(WorstBlocks, EqualsWhatSequencesHoldAtTheirLongest) {
  for (std::int64_t b = 1; b <= 5; ++b) {
    for (std::int64_t p = 1; p <= 12; ++p) {
      for (std::int64_t o = 2; o <= 9; ++o) {
        for (std::int64_t n = 1; n <= 3; ++n) {
          std::int64_t own = 0;
          for (std::int64_t position = p / b * b; position < p + o - 1; position += b) ++own;
          ASSERT_EQ(WorstBlocks(p, o, n, b), p / b + n * own) << p << ' ' << o << ' ' << n << ' ' << b;
        }
      }
    }
  }
}

}  // namespace
}  // namespace berth
