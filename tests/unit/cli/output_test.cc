#include "cli/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace berth::cli {
namespace {

using ::testing::HasSubstr;

TEST(OutputTest, AFullDeviceIsOneErrorAndLaterWritesDoNothing) {
  std::FILE* full = std::fopen("/dev/full", "wb");
  ASSERT_NE(full, nullptr);
  Output out(full);
  EXPECT_TRUE(out.Write("kept in the buffer"));
  EXPECT_FALSE(out.Flush());
  EXPECT_TRUE(out.closed());
  EXPECT_FALSE(out.Write("more"));
  const Outcome outcome = out.Finish();
  EXPECT_EQ(outcome.exit_code, kExitUsage);
  EXPECT_THAT(outcome.error, HasSubstr("No space left"));
  std::fclose(full);
}

TEST(JsonTest, TextThatIsNotUtf8BecomesReplacementCharactersInsteadOfAnException) {
  EXPECT_EQ(DumpJson({{"text", "a\xff"}}), "{\"text\":\"a\xEF\xBF\xBD\"}");
}

TEST(JsonTest, KeysKeepTheirOrderAndLogprobsTheirDecimals) {
  EXPECT_EQ(DumpJson({{"z", 1}, {"a", RoundedLogprob(-0.1F)}}), R"({"z":1,"a":-0.1})");
}

TEST(TextTest, NumbersGroupByThousands) {
  EXPECT_EQ(GroupDigits(0), "0");
  EXPECT_EQ(GroupDigits(999), "999");
  EXPECT_EQ(GroupDigits(1000), "1,000");
  EXPECT_EQ(GroupDigits(134'515'008), "134,515,008");
  EXPECT_EQ(GroupDigits(-1000), "-1,000");
}

TEST(TextTest, FactsAlign) {
  FactTable table;
  table.Add("a", "1");
  table.Add("long", "2");
  EXPECT_EQ(table.Text(), "  a     1\n  long  2\n");
}

TEST(TextTest, ColumnsAlignByCharacters) {
  ColumnTable table({"class", "blocks", "limit"});
  table.Add({"b\u00e9", "6,000", "none"});
  table.Add({"interactive", "0", "x"});
  EXPECT_EQ(table.Text(),
            "  class        blocks  limit\n"
            "  b\u00e9           6,000   none\n"
            "  interactive  0       x\n");
}

TEST(TextTest, ColumnsThatDoNotFitComeBelowWithTheFirstOneAgain) {
  ColumnTable table({"class", "blocks", "limit"});
  table.Add({"gold", "6,000", "none"});
  EXPECT_EQ(table.Text(15),
            "  class  blocks\n"
            "  gold   6,000\n"
            "\n"
            "  class  limit\n"
            "  gold   none\n");
  EXPECT_EQ(table.Text(1), table.Text(15)) << "a column stands beside the first, however narrow the screen";
  ColumnTable one({"class"});
  EXPECT_EQ(one.Text(1), "  class\n");
}

TEST(TextTest, TheFirstScreenHasWholeLinesAndARowToSpare) {
  const std::string text = "abcd\n\nabcdefghij\nk\n";
  EXPECT_EQ(FirstScreen(text, 4, 7), text);
  EXPECT_EQ(FirstScreen(text, 4, 6), "abcd\n\nabcdefghij\n");
  EXPECT_EQ(FirstScreen(text, 4, 5), "abcd\n\n");
  EXPECT_EQ(FirstScreen(text, 4, 1), "");
  EXPECT_EQ(FirstScreen(text, kAnyNumber, kAnyNumber), text);
}

TEST(TextTest, ErrorsAreOneLine) {
  EXPECT_EQ(OneLine("a\nb\r\n"), "a b");
  EXPECT_EQ(OneLine("\x1b[31mred\xff \xE2\x82\xAC"), " [31mred\xEF\xBF\xBD \xE2\x82\xAC");
}

}  // namespace
}  // namespace berth::cli
