#include "frontend/line_limit.h"

#include <gtest/gtest.h>

#include <chrono>

namespace berth {
namespace {

TEST(LineLimitTest, WhatAnybodyCanCauseFillsNoLogAndIsCounted) {
  LineLimit limit;
  const TimePoint start{std::chrono::seconds(100)};
  for (int i = 0; i < LineLimit::kMostPerSecond; ++i) EXPECT_EQ(limit.Take("a", start), "a");
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(limit.Take("a", start + std::chrono::milliseconds(999)), std::nullopt);
  const TimePoint later = start + std::chrono::seconds(1);
  EXPECT_EQ(limit.Take("b", later), "b; 1000 lines before it were left out");
  EXPECT_EQ(limit.Take("c", later), "c") << "they are told once";
}

}  // namespace
}  // namespace berth
