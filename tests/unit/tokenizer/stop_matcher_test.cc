#include "tokenizer/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "random_text.h"

namespace berth {
namespace {

struct Result {
  std::string text;
  std::optional<std::string> matched;
  bool operator==(const Result&) const = default;
};

// Appends `text` in pieces of random size.
Result RunInPieces(const std::vector<std::string>& stops, bool include, std::string_view text,
                   std::mt19937_64* random) {
  StopMatcher matcher(stops, include);
  Result result;
  while (!text.empty()) {
    const auto size =
        static_cast<std::size_t>(test::Pick(random, static_cast<int>(std::min<std::size_t>(text.size(), 5)) + 1));
    const StopMatcher::Output output = matcher.Append(text.substr(0, size));
    text.remove_prefix(size);
    result.text += output.text;
    if (output.matched) {
      result.matched = output.matched;
      break;
    }
  }
  result.text += matcher.Flush();
  return result;
}

// The definition: the match that ends first, the longest of those.
Result Expected(const std::vector<std::string>& stops, bool include, const std::string& text) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    const std::string* longest = nullptr;
    for (const std::string& stop : stops) {
      if (!stop.empty() && std::string_view(text).substr(0, end).ends_with(stop) &&
          (longest == nullptr || stop.size() > longest->size())) {
        longest = &stop;
      }
    }
    if (longest != nullptr) return {text.substr(0, include ? end : end - longest->size()), *longest};
  }
  return {text, std::nullopt};
}

TEST(StopMatcher, AnyCuttingGivesTheSameOutput) {
  std::mt19937_64 random(9);
  const auto letters = [&](int limit) {
    std::string text;
    for (int i = test::Pick(&random, limit + 1); i > 0; --i) text += static_cast<char>('a' + test::Pick(&random, 2));
    return text;
  };
  int matched = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops;
    for (int i = test::Pick(&random, 4); i > 0; --i) stops.push_back(letters(6));
    const std::string text = letters(20);
    const bool include = test::Pick(&random, 2) == 0;
    const Result expected = Expected(stops, include, text);
    matched += expected.matched.has_value();
    ASSERT_EQ(RunInPieces(stops, include, text, &random), expected) << text;
  }
  EXPECT_GT(matched, 1000);
}

// What is held is exactly the longest end of the text that begins a stop string: more would be late, less would leak.
TEST(StopMatcher, HoldsBackExactlyWhatMayBecomeAStopString) {
  std::mt19937_64 random(10);
  const std::vector<std::string> stops = {"aabaaa", "abab", "bbb"};
  for (int round = 0; round < 2000; ++round) {
    StopMatcher matcher(stops, false);
    std::string text;
    std::string shown;
    for (int i = 0; i < 30; ++i) {
      const std::string next(1, static_cast<char>('a' + test::Pick(&random, 2)));
      text += next;
      const StopMatcher::Output output = matcher.Append(next);
      shown += output.text;
      if (output.matched) break;
      std::size_t held = 0;
      for (const std::string& stop : stops) {
        for (std::size_t n = 1; n <= stop.size(); ++n) {
          if (text.ends_with(stop.substr(0, n))) held = std::max(held, n);
        }
      }
      ASSERT_EQ(shown, text.substr(0, text.size() - held)) << text;
    }
  }
}

TEST(StopMatcher, TheMatchIsLeftOutUnlessAskedFor) {
  StopMatcher without({"END"}, false);
  EXPECT_EQ(without.Append("abcEN").text, "abc");
  const StopMatcher::Output output = without.Append("D and more");
  EXPECT_EQ(output.text, "");
  EXPECT_EQ(output.matched, "END");
  EXPECT_EQ(without.Flush(), "");

  StopMatcher with({"END"}, true);
  EXPECT_EQ(with.Append("abcEN").text, "abc");
  EXPECT_EQ(with.Append("D and more").text, "END");
}

TEST(StopMatcher, TheFirstToEndWinsThoughALongerOneHadBegun) {
  StopMatcher matcher({"abcd", "bc"}, false);
  const StopMatcher::Output output = matcher.Append("xabcd");
  EXPECT_EQ(output.matched, "bc");
  EXPECT_EQ(output.text, "xa");
}

TEST(StopMatcher, ABrokenBeginningComesOut) {
  StopMatcher matcher({"\n\nUser:"}, false);
  EXPECT_EQ(matcher.Append("hi\n\nUs").text, "hi");
  EXPECT_EQ(matcher.Append("ually").text, "\n\nUsually");
  EXPECT_EQ(matcher.Append(" \n").text, " ");
  EXPECT_EQ(matcher.Flush(), "\n");
}

TEST(StopMatcher, CharactersOfOtherScriptsAreNeverCut) {
  StopMatcher matcher({"日本", "👋"}, false);
  EXPECT_EQ(matcher.Append("こ日").text, "こ");
  EXPECT_EQ(matcher.Append("曜👌").text, "日曜👌");
  EXPECT_EQ(matcher.Append("x👋").matched, "👋");
}

TEST(StopMatcher, NoStopStringsPassEverything) {
  StopMatcher matcher({}, false);
  EXPECT_EQ(matcher.Append("abc").text, "abc");
  StopMatcher empty({""}, false);
  EXPECT_EQ(empty.Append("abc").text, "abc");
}

TEST(StopMatcherDeathTest, NothingMayFollowAMatch) {
  StopMatcher matcher({"a"}, false);
  matcher.Append("a");
  EXPECT_DEATH(matcher.Append("b"), "check failed");
}

}  // namespace
}  // namespace berth
