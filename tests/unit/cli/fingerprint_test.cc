#include "cli/fingerprint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace berth::cli {
namespace {

std::string HexOf(std::initializer_list<std::string_view> parts) {
  Fingerprint fingerprint;
  for (const std::string_view part : parts) fingerprint.Add(part);
  return fingerprint.Hex();
}

TEST(FingerprintTest, IsTheSameOnEveryMachine) {
  EXPECT_EQ(HexOf({}), "cbf29ce484222325");
  EXPECT_EQ(HexOf({"berth"}), "9225379fed82dc2f");
}

TEST(FingerprintTest, PartsAreKeptApart) {
  EXPECT_NE(HexOf({"a", "bc"}), HexOf({"ab", "c"}));
  EXPECT_NE(HexOf({"abc"}), HexOf({"abc", ""}));
}

TEST(FingerprintTest, AModelIsKnownByItsBytesNotItsName) {
  const std::string folder = ::testing::TempDir();
  const auto write = [&](const std::string& name, std::size_t bytes, char last) {
    std::string text(bytes, 'w');
    if (bytes > 0) text.back() = last;
    std::ofstream(folder + "/" + name, std::ios::binary) << text;
    return *FingerprintModel(folder + "/" + name);
  };
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{10}, std::size_t{5} << 20}) {
    EXPECT_EQ(write("a.gguf", bytes, 'x').value(), write("b.gguf", bytes, 'x').value());
    if (bytes > 0) {
      EXPECT_NE(write("a.gguf", bytes, 'x').value(), write("b.gguf", bytes, 'y').value());
    }
    EXPECT_NE(write("a.gguf", bytes, 'x').value(), write("b.gguf", bytes + 1, 'w').value());
  }
  EXPECT_FALSE(FingerprintModel("/absent/model.gguf").ok());
}

}  // namespace
}  // namespace berth::cli
