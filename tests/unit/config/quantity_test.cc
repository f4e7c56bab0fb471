#include "config/quantity.h"

#include <gtest/gtest.h>

#include <string>

namespace berth {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Quantity, BlocksBytesAndSharesAreToldApartByTheirUnit) {
  EXPECT_EQ(*ParseQuantity("128"), (Quantity{QuantityUnit::kBlocks, 128}));
  EXPECT_EQ(*ParseQuantity("0"), (Quantity{QuantityUnit::kBlocks, 0}));
  EXPECT_EQ(*ParseQuantity("2GiB"), (Quantity{QuantityUnit::kBytes, std::int64_t{2} << 30}));
  EXPECT_EQ(*ParseQuantity("60%"), PercentOf(60));
  EXPECT_EQ(*ParseQuantity("33.3333%"), (Quantity{QuantityUnit::kShare, 333'333}));
  for (const char* text : {"", "%", "-1", "1.5", "1e3", "5 %", "33.33333%", "+5", "0x5", "1,5%", ".5%", "5.%"}) {
    EXPECT_FALSE(ParseQuantity(text).ok()) << text;
  }
}

TEST(Quantity, PromisesRoundDownAndLimitsUp) {
  EXPECT_EQ(PromisedBlocks(PercentOf(20), 99, 0), 19);
  EXPECT_EQ(LimitBlocks(PercentOf(80), 99, 0), 80);
  EXPECT_EQ(PromisedBlocks({QuantityUnit::kBytes, 2999}, 99, 1000), 2);
  EXPECT_EQ(LimitBlocks({QuantityUnit::kBytes, 2001}, 99, 1000), 3);
  EXPECT_EQ(PromisedBlocks({QuantityUnit::kBytes, 2000}, 99, 0), std::nullopt);
  EXPECT_EQ(LimitBlocks({QuantityUnit::kBlocks, 7}, 99, 0), 7);
}

TEST(Quantity, SharesOfAHundredPercentFitEveryPoolAndACeilingOfAHundredPercentIsAllOfIt) {
  const std::int64_t thirds[] = {333'333, 333'333, 333'334};
  for (std::int64_t pool = 1; pool < 3000; ++pool) {
    std::int64_t sum = 0;
    for (const std::int64_t third : thirds) sum += *PromisedBlocks({QuantityUnit::kShare, third}, pool, 0);
    EXPECT_LE(sum, pool);
    EXPECT_EQ(*PromisedBlocks(PercentOf(20), pool, 0) + *LimitBlocks(PercentOf(80), pool, 0), pool);
  }
  EXPECT_EQ(PromisedBlocks(PercentOf(100), INT32_MAX, 0), INT32_MAX);
}

TEST(ParseDuration, TakesOneUnitOrSeveralInOrder) {
  EXPECT_EQ(*ParseDuration("2s"), seconds(2));
  EXPECT_EQ(*ParseDuration("500ms"), milliseconds(500));
  EXPECT_EQ(*ParseDuration("1.5h"), milliseconds(5'400'000));
  EXPECT_EQ(*ParseDuration("1m30s"), seconds(90));
  EXPECT_EQ(*ParseDuration("1d2h"), hours(26));
  EXPECT_EQ(*ParseDuration("250us"), std::chrono::microseconds(250));
  EXPECT_EQ(*ParseDuration("0.001us"), Duration(1));
  EXPECT_EQ(*ParseDuration("365d"), hours(365 * 24));
  EXPECT_EQ(*ParseDuration("0"), Duration(0));
  for (const char* text : {"", "5", "s", "5 s", "-5s", "1s1m", "1s1s", "1.5", "5sec", "1e3s", "1.2345s", "366d",
                           "9999999999999s", "infs", "5S"}) {
    EXPECT_FALSE(ParseDuration(text).ok()) << text;
  }
}

TEST(Format, WhatIsWrittenReadsBackTheSame) {
  for (const char* text : {"2s", "500ms", "90s", "1m", "36h", "1d", "250us", "1ns"}) {
    const Duration time = *ParseDuration(text);
    EXPECT_EQ(*ParseDuration(FormatDuration(time)), time) << text;
  }
  for (const char* text : {"60%", "12.5%", "0.0001%", "100%", "0%", "128", "2GiB", "1.5GiB", "17B", "500MB"}) {
    const Quantity quantity = *ParseQuantity(text);
    EXPECT_EQ(*ParseQuantity(FormatQuantity(quantity)), quantity) << text;
  }
  EXPECT_EQ(FormatShare(125'000), "12.5%");
  EXPECT_EQ(FormatByteSize(std::int64_t{3} << 29), "1536MiB");
  EXPECT_EQ(FormatDuration(seconds(90)), "90s");
}

}  // namespace
}  // namespace berth
