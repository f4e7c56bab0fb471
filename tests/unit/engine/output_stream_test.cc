#include "engine/output_stream.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "fakes/fake_tokenizer.h"

namespace berth::test {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

struct Ended {
  std::string text;
  std::vector<std::string> deltas;
  std::optional<Finished> finished;
  int tokens = 0;
};

class OutputStreamTest : public ::testing::Test {
 protected:
  OutputStreamTest() { spec.stopping.max_output_tokens = 100; }

  EndRule Rule(std::int64_t max_output_tokens) const { return {tokenizer, spec.stopping, max_output_tokens, {}}; }

  Ended Feed(const std::vector<TokenId>& ids) {
    const EndRule rule = Rule(spec.stopping.max_output_tokens);
    OutputStream stream(&tokenizer, &spec, prompt, &rule);
    Ended result;
    for (const TokenId id : ids) {
      TokenDelta delta;
      result.finished = stream.Append(id, &delta);
      ++result.tokens;
      result.deltas.push_back(delta.text);
      result.text += delta.text;
      if (result.finished.has_value()) break;
    }
    return result;
  }

  FakeTokenizer tokenizer{{"日本", "語END", " wor", "ld"}};
  std::vector<TokenId> prompt = Bytes("prompt");
  GenerateSpec spec;
};

std::string StopString(const Ended& ended) {
  return ended.finished.has_value() && ended.finished->reason == FinishReason::kStopString
             ? std::get<std::string>(ended.finished->stop_match)
             : "(no stop string)";
}

TEST_F(OutputStreamTest, SendsWholeCharactersOnly) {
  const Ended ended = Feed(Bytes("é日👍"));
  EXPECT_EQ(ended.deltas, (std::vector<std::string>{"", "é", "", "", "日", "", "", "", "👍"}));
  EXPECT_FALSE(ended.finished.has_value());
}

TEST_F(OutputStreamTest, FindsStopStringsAcrossTokensThatCutCharacters) {
  spec.stopping.stop_strings = {"終👍"};
  const Ended ended = Feed(Bytes("日本終終👍後"));
  EXPECT_EQ(StopString(ended), "終👍");
  EXPECT_EQ(ended.text, "日本終");
  EXPECT_EQ(ended.tokens, 16) << "it ends with the byte that completes the string";
}

TEST_F(OutputStreamTest, CutsAStopStringOutOfTheMiddleOfAToken) {
  spec.stopping.stop_strings = {"本語"};
  const Ended ended = Feed({FakeTokenizer::kFirstPiece, FakeTokenizer::kFirstPiece + 1});
  EXPECT_EQ(StopString(ended), "本語");
  EXPECT_EQ(ended.text, "日");
}

TEST_F(OutputStreamTest, KeepsTheStopStringButNothingBehindItWhereAskedFor) {
  spec.stopping.stop_strings = {"本語"};
  spec.stopping.include_stop_text = true;
  EXPECT_EQ(Feed({FakeTokenizer::kFirstPiece, FakeTokenizer::kFirstPiece + 1}).text, "日本語");
}

TEST_F(OutputStreamTest, NeverSendsTextThatAStopStringTakesBack) {
  std::mt19937 random(5);
  const std::vector<std::string> alphabet = {"a", "b", "日", "👍"};
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (int i = 0; i < 20; ++i) text += alphabet[random() % alphabet.size()];
    std::string stop;
    for (std::size_t i = 1 + random() % 4; i > 0; --i) stop += alphabet[random() % alphabet.size()];
    spec.stopping.stop_strings = {stop};
    const Ended ended = Feed(Bytes(text));
    const std::size_t at = text.find(stop);
    if (at == std::string::npos) {
      ASSERT_FALSE(ended.finished.has_value());
      ASSERT_TRUE(text.starts_with(ended.text));
    } else {
      ASSERT_EQ(StopString(ended), stop);
      ASSERT_EQ(ended.text, text.substr(0, at));
    }
  }
}

TEST_F(OutputStreamTest, FlushesWhatWasHeldBackWhenTheLengthEndsIt) {
  spec.stopping.stop_strings = {"END"};
  spec.stopping.max_output_tokens = 4;
  const Ended held = Feed(Bytes("abEN"));
  EXPECT_EQ(held.finished->reason, FinishReason::kLength);
  EXPECT_EQ(held.text, "abEN");
  EXPECT_EQ(Feed(Bytes("abc\xF0")).text, std::string("abc") + kReplacement);
}

TEST_F(OutputStreamTest, FlushesWhatWasHeldBackWhenAStopTokenEndsIt) {
  spec.stopping.stop_strings = {"END"};
  std::vector<TokenId> ids = Bytes("abEN");
  ids.push_back(FakeTokenizer::kEos);
  const Ended ended = Feed(ids);
  EXPECT_EQ(ended.finished->reason, FinishReason::kStopToken);
  EXPECT_EQ(ended.text, "abEN");
}

TEST_F(OutputStreamTest, AStopStringOnTheLastTokenWinsOverTheLength) {
  spec.stopping.stop_strings = {"END"};
  spec.stopping.max_output_tokens = 4;
  const Ended ended = Feed(Bytes("aEND"));
  EXPECT_EQ(StopString(ended), "END");
  EXPECT_EQ(ended.text, "a");
}

TEST_F(OutputStreamTest, EveryEndTokenOfTheModelStopsUnlessIgnored) {
  for (const TokenId id : {FakeTokenizer::kEos, FakeTokenizer::kEndOfTurn}) {
    spec.stopping.ignore_eos = false;
    const Ended ended = Feed({'a', id, 'b'});
    EXPECT_EQ(ended.finished->reason, FinishReason::kStopToken);
    EXPECT_EQ(std::get<TokenId>(ended.finished->stop_match), id);
    EXPECT_EQ(ended.text, "a");
    spec.stopping.ignore_eos = true;
    const Ended ignored = Feed({'a', id, 'b'});
    EXPECT_FALSE(ignored.finished.has_value());
    EXPECT_EQ(ignored.text, "ab");
  }
}

TEST_F(OutputStreamTest, StopTokenIdsStopEvenWithIgnoreEos) {
  spec.stopping.ignore_eos = true;
  spec.stopping.stop_token_ids = {'z', 'x', 'x'};
  const Ended ended = Feed(Bytes("abxc"));
  EXPECT_EQ(std::get<TokenId>(ended.finished->stop_match), 'x');
  EXPECT_EQ(ended.text, "ab");
  EXPECT_EQ(ended.tokens, 3);
}

TEST_F(OutputStreamTest, IncludeStopTextShowsTheStopTokensTextOrSpelling) {
  spec.stopping.include_stop_text = true;
  EXPECT_EQ(Feed({'a', FakeTokenizer::kEos}).text, "a<eos>");
  spec.stopping.stop_token_ids = {'x'};
  EXPECT_EQ(Feed(Bytes("abx")).text, "abx");
  spec.stopping.stop_strings = {"bcd"};  // "b" is held back when the stop token comes
  EXPECT_EQ(Feed(Bytes("abx")).text, "abx");
  spec.stopping.stop_token_ids = {0xA9};  // the second half of é
  EXPECT_EQ(Feed(Bytes("é")).text, "é");
}

TEST_F(OutputStreamTest, NoStopStringIsFoundInTheTextOfTheFirstMinOutputTokens) {
  spec.stopping.stop_strings = {"END"};
  spec.stopping.min_output_tokens = 4;
  EXPECT_FALSE(Feed(Bytes("aEND")).finished.has_value());
  EXPECT_EQ(Feed(Bytes("aEND")).text, "aEND") << "and nothing of it is held back";
  EXPECT_FALSE(Feed(Bytes("aaEND")).finished.has_value()) << "a match lies behind them wholly";
  const Ended ended = Feed(Bytes("aENDbEND"));
  EXPECT_EQ(StopString(ended), "END");
  EXPECT_EQ(ended.text, "aENDb");
}

TEST_F(OutputStreamTest, TheWholeOutputMayBeExemptFromStopping) {
  spec.stopping.stop_strings = {"b", kReplacement};
  spec.stopping.min_output_tokens = 3;
  spec.stopping.max_output_tokens = 3;
  const Ended ended = Feed(Bytes("ab\xE6"));
  EXPECT_EQ(ended.finished->reason, FinishReason::kLength);
  EXPECT_EQ(ended.text, std::string("ab") + kReplacement);
}

TEST_F(OutputStreamTest, BansStopTokensAndWhatIsNoTokenWithoutRepeats) {
  spec.stopping.stop_token_ids = {'x', FakeTokenizer::kEos};
  const std::vector<TokenId> never = {300, 301};
  EXPECT_TRUE(EndRule(tokenizer, spec.stopping, 5, never).early_banned().empty()) << "nothing is early";
  spec.stopping.min_output_tokens = 1;
  const EndRule rule(tokenizer, spec.stopping, 5, never);
  const std::vector<TokenId> early(rule.early_banned().begin(), rule.early_banned().end());
  EXPECT_EQ(early, (std::vector<TokenId>{'x', FakeTokenizer::kEos, FakeTokenizer::kEndOfTurn, 300, 301}));
}

TEST_F(OutputStreamTest, TheOutputsLeadingSpaceIsItsOwnUnlessThePromptHasNoText) {
  tokenizer.set_strips_leading_space(true);
  EXPECT_EQ(Feed({FakeTokenizer::kFirstPiece + 2, FakeTokenizer::kFirstPiece + 3}).text, " world");
  prompt = {FakeTokenizer::kBos};
  EXPECT_EQ(Feed({FakeTokenizer::kFirstPiece + 2, FakeTokenizer::kFirstPiece + 3}).text, "world");
}

TEST_F(OutputStreamTest, EchoShowsThePromptAndTheOutputFinishesItsLastCharacter) {
  spec.output.echo_prompt = true;
  prompt = Bytes("p\xE6\x97");
  const EndRule rule = Rule(5);
  OutputStream stream(&tokenizer, &spec, prompt, &rule);
  EXPECT_EQ(stream.prompt_text(), "p");
  TokenDelta delta;
  stream.Append(0xA5, &delta);
  EXPECT_EQ(delta.text, "日");
}

TEST_F(OutputStreamTest, WithoutEchoThePromptsTextIsNotKept) {
  const EndRule rule = Rule(5);
  EXPECT_EQ(OutputStream(&tokenizer, &spec, prompt, &rule).prompt_text(), "");
}

TEST_F(OutputStreamTest, StopStringsInThePromptEndNothing) {
  spec.stopping.stop_strings = {"prompt", "t1"};
  spec.output.echo_prompt = true;
  EXPECT_FALSE(Feed(Bytes("1 and more")).finished.has_value());
}

TEST_F(OutputStreamTest, ADeadlineFlushesWhatWasHeldBack) {
  spec.stopping.stop_strings = {"END"};
  const EndRule rule = Rule(50);
  OutputStream stream(&tokenizer, &spec, prompt, &rule);
  std::string text;
  for (const TokenId id : Bytes("aEN")) {
    TokenDelta delta;
    stream.Append(id, &delta);
    text += delta.text;
  }
  TokenDelta last;
  EXPECT_EQ(stream.EndAtDeadline(&last).reason, FinishReason::kDeadline);
  EXPECT_EQ(text + last.text, "aEN");
}

}  // namespace
}  // namespace berth::test
