#include "base/text.h"

#include <gtest/gtest.h>

#include <string>

namespace berth {
namespace {

TEST(CutAtCharacter, LeavesWhatFits) {
  EXPECT_EQ(CutAtCharacter("", 0), "");
  EXPECT_EQ(CutAtCharacter("abc", 3), "abc");
  EXPECT_EQ(CutAtCharacter("\u00e9", 2), "\u00e9");
}

TEST(CutAtCharacter, NeverSplitsACharacter) {
  const std::string text = "a\u00e9\u20ac\U0001F600";  // 1, 2, 3 and 4 bytes
  const std::size_t ends[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10};
  for (std::size_t max_bytes = 0; max_bytes <= text.size(); ++max_bytes) {
    EXPECT_EQ(CutAtCharacter(text, max_bytes), text.substr(0, ends[max_bytes])) << max_bytes;
  }
}

TEST(CutAtCharacter, EndsWithTextThatIsNoUtf8) { EXPECT_EQ(CutAtCharacter(std::string(9, '\x80'), 4), ""); }

}  // namespace
}  // namespace berth
