#include "cli/batch_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace berth::cli {
namespace {

using std::chrono::seconds;

TEST(ProgressTextTest, WhatWasSkippedCountsAsDoneButNotIntoTheTimeThatIsLeft) {
  const BatchCounts counts{
      .lines = 1000, .skipped = 500, .answered = 90, .failed = 10, .output_tokens = 5000, .elapsed = seconds(10)};
  EXPECT_EQ(ProgressText(counts), "600 of 1,000 lines · 10 failed · 500 tokens/s · 0:40 left");
}

TEST(ProgressTextTest, WithoutATotalNothingIsForetold) {
  EXPECT_EQ(ProgressText({.lines = {}, .answered = 3, .output_tokens = 12, .elapsed = seconds(4)}),
            "3 lines · 3.0 tokens/s");
}

TEST(ProgressTextTest, BeforeTheFirstAnswerNoTimeIsForetold) {
  EXPECT_EQ(ProgressText({.lines = 2, .output_tokens = 40, .elapsed = seconds(2)}), "0 of 2 lines · 20 tokens/s");
}

TEST(ProgressBarTest, FillsInProportionAndFitsItsTerminal) {
  const BatchCounts counts{.lines = 4, .answered = 1, .elapsed = seconds(1)};
  EXPECT_EQ(ProgressBar(counts, 200), "[######..................] 25% · 1 of 4 lines · 0.0 tokens/s · 0:03 left");
  EXPECT_EQ(ProgressBar(counts, 20), "[######............");
  EXPECT_EQ(ProgressBar({.lines = 0}, 200), "0 of 0 lines · 0.0 tokens/s");
}

TEST(MinutesTest, HoursAppearOnceThereAreAny) {
  EXPECT_EQ(MinutesAndSeconds(0.4), "0:00");
  EXPECT_EQ(MinutesAndSeconds(65), "1:05");
  EXPECT_EQ(MinutesAndSeconds(7384), "2:03:04");
}

}  // namespace
}  // namespace berth::cli
