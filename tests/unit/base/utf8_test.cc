#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace berth {
namespace {

TEST(Utf8, RoundTripsEveryScalarValue) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    AppendUtf8(c, &text);
    const Utf8Prefix prefix = ReadUtf8(text + "\x80");
    ASSERT_EQ(prefix.state, Utf8State::kValid);
    ASSERT_EQ(prefix.code_point, c);
    ASSERT_EQ(static_cast<std::size_t>(prefix.bytes), text.size());
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(ReadUtf8(text.substr(0, cut)).state, Utf8State::kUnfinished);
    }
  }
}

TEST(Utf8, InvalidTextIsFoundAtItsFirstByte) {
  EXPECT_EQ(FindInvalidUtf8("caf\xC3\xA9"), std::nullopt);
  EXPECT_EQ(FindInvalidUtf8("caf\xC3"), 3u);
  EXPECT_EQ(FindInvalidUtf8("a\xC0\x80"), 1u);          // overlong
  EXPECT_EQ(FindInvalidUtf8("ab\xED\xA0\x80"), 2u);     // surrogate
  EXPECT_EQ(FindInvalidUtf8("\xF4\x90\x80\x80"), 0u);   // above U+10FFFF
  EXPECT_EQ(FindInvalidUtf8("\xE0\x9F\xBF"), 0u);       // overlong
  EXPECT_EQ(FindInvalidUtf8("ok\xF0\x9F\x91 ok"), 2u);  // cut off
}

}  // namespace
}  // namespace berth
