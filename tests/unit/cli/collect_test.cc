#include "cli/collect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace berth::cli {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TokenDelta Delta(std::string text, std::vector<TokenId> ids) { return {0, std::move(text), std::move(ids), {}}; }

TEST(AnswerTest, DeltasAddUp) {
  Answer answer;
  answer.Add(Delta("ab", {1, 2}));
  answer.Add(Delta("", {3}));
  answer.Add(Delta("c", {}));
  EXPECT_FALSE(answer.ended());
  answer.Add(Finished{0, FinishReason::kStopString, std::string("x")});
  Completed completed;
  completed.usage.prompt_tokens = 4;
  answer.Add(completed);
  EXPECT_TRUE(answer.ended());
  EXPECT_EQ(answer.only().text, "abc");
  EXPECT_THAT(answer.only().output_ids, ElementsAre(1, 2, 3));
  EXPECT_EQ(answer.FinishName(answer.only()), "stop_string");
  EXPECT_EQ(StopMatchJson(answer.only()), "x");
  EXPECT_EQ(answer.usage.prompt_tokens, 4);
}

TEST(AnswerTest, ACancelledRequestKeepsWhatCameBefore) {
  Answer answer;
  answer.Add(Delta("half", {1}));
  Failed failed;
  failed.refusal.reason = RefusalReason::kCancelledByClient;
  failed.usage.output_tokens = 1;
  answer.Add(failed);
  EXPECT_TRUE(answer.ended());
  EXPECT_EQ(answer.only().text, "half");
  EXPECT_EQ(answer.FinishName(answer.only()), "cancelled");
  EXPECT_EQ(answer.usage.output_tokens, 1);
}

TEST(AnswerTest, EachChoiceGathersItsOwn) {
  Answer answer(2);
  answer.Add(TokenDelta{1, "b", {2}, {}});
  answer.Add(TokenDelta{0, "a", {1}, {}});
  answer.Add(Finished{1, FinishReason::kLength, {}});
  for (const std::int32_t nobody : {-1, 2}) answer.Add(TokenDelta{nobody, "x", {9}, {}});
  EXPECT_EQ(answer.choices[0].text, "a");
  EXPECT_EQ(answer.choices[1].text, "b");
  EXPECT_FALSE(answer.choices[0].finished.has_value());
  EXPECT_EQ(answer.FinishName(answer.choices[1]), "length");
}

TEST(FiguresTest, RatesComeFromTheTimesOfTheirOwnPhase) {
  Answer answer;
  answer.choices[0].finished.emplace().reason = FinishReason::kLength;
  answer.usage.prompt_tokens = 100;
  answer.usage.output_tokens = 21;
  answer.usage.reserved_blocks = 8;
  answer.usage.peak_blocks = 7;
  answer.usage.prefill_time = milliseconds(500);
  answer.usage.decode_time = milliseconds(1000);
  answer.usage.time_to_first_token = milliseconds(510);
  EXPECT_EQ(FiguresLine(answer),
            "100 prompt tokens, 21 output tokens (length) · first token 510 ms · prefill 200.0 tokens/s · decode 20.0 "
            "tokens/s"
            " · 7 of 8 reserved KV blocks used");
  EXPECT_EQ(TimingJson(answer.usage)["decode_tokens_per_second"], 20.0);
}

TEST(FiguresTest, NoTimeIsNoDivisionByZero) {
  Answer answer;
  answer.usage.output_tokens = 2;
  EXPECT_THAT(FiguresLine(answer), HasSubstr("decode 0.0 tokens/s"));
}

TEST(LogprobsJsonTest, PiecesAppearWhereAVocabularyIsAtHand) {
  const std::vector<TokenLogprob> logprobs = {
      {.token_id = 7, .logprob = -0.5F, .top = {{.token_id = 8, .logprob = -0.25F}}}};
  EXPECT_EQ(DumpJson(LogprobsJson(logprobs, nullptr)), R"([{"id":7,"logprob":-0.5,"top":[{"id":8,"logprob":-0.25}]}])");
  EXPECT_EQ(LogprobsJson(logprobs, [](TokenId id) { return "p" + std::to_string(id); })[0]["piece"], "p7");
}

}  // namespace
}  // namespace berth::cli
