#include "config/size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/server_config.h"

namespace berth {
namespace {

using ::testing::HasSubstr;

TEST(ByteSizeTest, EveryUnitMeansWhatItSays) {
  EXPECT_EQ(*ParseByteSize("512MiB"), 512LL << 20);
  EXPECT_EQ(*ParseByteSize("2GiB"), 2LL << 30);
  EXPECT_EQ(*ParseByteSize("1.5 GiB"), 3LL << 29);
  EXPECT_EQ(*ParseByteSize("2Gi"), 2LL << 30);
  EXPECT_EQ(*ParseByteSize("64Ki"), 64LL << 10);
  EXPECT_EQ(*ParseByteSize("1TiB"), 1LL << 40);
  EXPECT_EQ(*ParseByteSize("500MB"), 500'000'000);
  EXPECT_EQ(*ParseByteSize("17B"), 17);
}

TEST(ByteSizeTest, ZeroNeedsNoUnitAndNothingElseGoesWithoutOne) {
  EXPECT_EQ(*ParseByteSize("0"), 0);
  EXPECT_THAT(std::string(ParseByteSize("4096").status().message()), HasSubstr("needs a unit"));
}

TEST(ByteSizeTest, WhatIsNoSizeIsRefusedWithTheTextFound) {
  for (const char* text :
       {"", "GiB", "-1GiB", "nan", "infGiB", "1e3GiB", "2gib", "2 G", "0x2GiB", "99999999TiB", "2GiB2"}) {
    EXPECT_EQ(ParseByteSize(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_THAT(std::string(ParseByteSize("2gib").status().message()), HasSubstr("\"gib\""));
}

TEST(ByteSizeTest, BytesPrintInTheLargestUnitThatFits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.0 KiB");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes((1LL << 20) - 1), "1.0 MiB");
  EXPECT_EQ(FormatBytes(98'362'432), "93.8 MiB");
  EXPECT_EQ(FormatBytes(5LL << 40), "5.0 TiB");
}

TEST(ServerConfigTest, KvFollowsTheComputeModeUnlessItIsChosen) {
  ServerConfig config;
  EXPECT_EQ(config.kv_dtype(), KvDtype::kBf16);
  config.compute.float32 = true;
  EXPECT_EQ(config.kv_dtype(), KvDtype::kFloat32);
  config.kv_cache.dtype = KvDtype::kBf16;
  EXPECT_EQ(config.kv_dtype(), KvDtype::kBf16);
}

}  // namespace
}  // namespace berth
