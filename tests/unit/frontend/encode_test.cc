#include "frontend/encode.h"

#include <gtest/gtest.h>

#include "fakes/fake_tokenizer.h"

namespace berth {
namespace {

TEST(EncodeTest, UsageArrivesInFull) {
  Usage usage;
  usage.prompt_tokens = 1;
  usage.cached_tokens = 2;
  usage.output_tokens = 3;
  usage.reserved_blocks = 4;
  usage.peak_blocks = 5;
  usage.kv_block_seconds = 6.5;
  usage.held_block_seconds = 7.5;
  usage.accelerator_seconds = 8.5;
  usage.queue_time = std::chrono::milliseconds(1500);
  usage.prefill_time = std::chrono::nanoseconds(2);
  usage.decode_time = std::chrono::seconds(3);
  usage.time_to_first_token = std::chrono::seconds(4);
  usage.preemptions = 9;
  usage.recomputed_tokens = 10;
  v1::Usage out;
  EncodeUsage(usage, &out);
  EXPECT_EQ(out.prompt_tokens(), 1);
  EXPECT_EQ(out.cached_tokens(), 2);
  EXPECT_EQ(out.output_tokens(), 3);
  EXPECT_EQ(out.reserved_blocks(), 4);
  EXPECT_EQ(out.peak_blocks(), 5);
  EXPECT_EQ(out.kv_block_seconds(), 6.5);
  EXPECT_EQ(out.held_block_seconds(), 7.5);
  EXPECT_EQ(out.accelerator_seconds(), 8.5);
  EXPECT_EQ(out.queue_time().seconds(), 1);
  EXPECT_EQ(out.queue_time().nanos(), 500'000'000);
  EXPECT_EQ(out.prefill_time().nanos(), 2);
  EXPECT_EQ(out.decode_time().seconds(), 3);
  EXPECT_EQ(out.time_to_first_token().seconds(), 4);
  EXPECT_EQ(out.preemptions(), 9);
  EXPECT_EQ(out.recomputed_tokens(), 10);
}

TEST(EncodeTest, TimeToFirstTokenIsAbsentWithoutAToken) {
  v1::Usage out;
  EncodeUsage(Usage(), &out);
  EXPECT_FALSE(out.has_time_to_first_token());
}

TEST(EncodeTest, PiecesAreBytesAndControlTokensAreSpelled) {
  const test::FakeTokenizer tokenizer;
  const EventEncoder encoder(&tokenizer, OutputSpec(), "batch");
  v1::Completed out;
  encoder.Encode(
      Completed{{}, {{0xC3, -0.5F, {{test::FakeTokenizer::kEos, -0.25F}}}, {tokenizer.vocab_size(), -9.0F, {}}}}, &out);
  ASSERT_EQ(out.prompt_logprobs_size(), 2);
  const v1::TokenLogprob& first = out.prompt_logprobs(0);
  EXPECT_EQ(first.token_id(), 0xC3);
  EXPECT_EQ(first.logprob(), -0.5F);
  EXPECT_EQ(first.piece(), "\xC3");
  ASSERT_EQ(first.top_size(), 1);
  EXPECT_EQ(first.top(0).piece(), "<eos>");
  // A padding row of the embedding is no token.
  EXPECT_EQ(out.prompt_logprobs(1).piece(), "");
}

TEST(EncodeTest, StopMatchesSayWhatEndedTheChoice) {
  const test::FakeTokenizer tokenizer;
  const EventEncoder encoder(&tokenizer, OutputSpec(), "batch");
  const auto encode = [&](FinishReason reason, decltype(Finished::stop_match) match) {
    v1::Finished out;
    encoder.Encode(Finished{2, reason, std::move(match)}, &out);
    EXPECT_EQ(out.index(), 2);
    return out;
  };
  EXPECT_EQ(encode(FinishReason::kStopString, std::string("END")).stop_match().stop_string(), "END");
  const v1::Finished token = encode(FinishReason::kStopToken, TokenId{0});
  EXPECT_EQ(token.finish_reason(), v1::FINISH_REASON_STOP_TOKEN);
  EXPECT_TRUE(token.stop_match().has_stop_token_id());
  EXPECT_FALSE(encode(FinishReason::kLength, {}).has_stop_match());
  EXPECT_EQ(encode(FinishReason::kDeadline, {}).finish_reason(), v1::FINISH_REASON_DEADLINE);
}

}  // namespace
}  // namespace berth
