#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace berth {
namespace {

// The examples of FIPS 180-4.
TEST(Sha256, IsThePublishedDigest) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, IsReadBackFromItsDigits) {
  EXPECT_EQ(ParseSha256(Sha256Hex("abc")), Sha256("abc"));
  EXPECT_NE(Sha256("abc"), Sha256("abd"));
  const std::string hex = Sha256Hex("abc");
  for (const std::string& bad : {std::string(), hex.substr(1), hex + "0", hex.substr(1) + "g", hex.substr(1) + "A"}) {
    EXPECT_FALSE(ParseSha256(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace berth
