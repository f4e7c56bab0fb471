#include "tokenizer/added_tokens.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

namespace berth {
namespace {

using Found = std::vector<std::tuple<std::size_t, std::size_t, TokenId>>;

Found FindAll(const AddedTokens& tokens, std::string_view text, bool parse_special) {
  Found found;
  std::size_t from = 0;
  while (const auto match = tokens.Find(text, from, parse_special)) {
    found.emplace_back(match->begin, match->end, match->id);
    from = match->end;
  }
  return found;
}

TEST(AddedTokens, TheLeftmostThenTheLongestIsFound) {
  AddedTokens tokens;
  tokens.Add("ab", {.id = 1});
  tokens.Add("abcd", {.id = 2});
  tokens.Add("bcde", {.id = 3});
  EXPECT_EQ(FindAll(tokens, "xabcdeab", false), (Found{{1, 5, 2}, {6, 8, 1}}));
  EXPECT_EQ(FindAll(tokens, "abcxbcde", false), (Found{{0, 2, 1}, {4, 8, 3}}));
  EXPECT_EQ(FindAll(tokens, "acb", false), Found());
  EXPECT_EQ(FindAll(tokens, "", false), Found());
}

TEST(AddedTokens, SpecialOnesAreFoundOnlyWhenAskedFor) {
  AddedTokens tokens;
  tokens.Add("<|a|>", {.id = 1, .is_special = true});
  tokens.Add("<|a|>b", {.id = 2});
  tokens.Add("<|", {.id = 3});
  EXPECT_EQ(FindAll(tokens, "<|a|>c", true), (Found{{0, 5, 1}}));
  EXPECT_EQ(FindAll(tokens, "<|a|>c", false), (Found{{0, 2, 3}}));
  EXPECT_EQ(FindAll(tokens, "<|a|>b", false), (Found{{0, 6, 2}}));
}

TEST(AddedTokens, OneThatStripsRightSwallowsWhiteSpace) {
  AddedTokens tokens;
  tokens.Add("<u>", {.id = 1, .strips_right = true});
  EXPECT_EQ(FindAll(tokens, "<u> \n\xE3\x80\x80hi", false), (Found{{0, 8, 1}}));
  EXPECT_EQ(FindAll(tokens, "<u>  ", false), (Found{{0, 5, 1}}));
}

TEST(AddedTokens, TheFirstOfEqualSpellingsStays) {
  AddedTokens tokens;
  tokens.Add("x", {.id = 7});
  tokens.Add("x", {.id = 9});
  EXPECT_EQ(FindAll(tokens, "x", false), (Found{{0, 1, 7}}));
}

}  // namespace
}  // namespace berth
