// The bill.
#include "engine_fixture.h"

#include "engine/usage_meter.h"

namespace berth::test {
namespace {

using std::chrono::seconds;
class Billing : public BothWays<> {};
BERTH_BOTH_WAYS(Billing);

TEST_P(Billing, EveryNumberIsAsDocumented) {
  StartEngine({.block_tokens = 4, .max_step_tokens = 4, .step_time = seconds(1)});
  TokenizedRequest request = Request("bill", "ten tokens", 3);
  clock.Advance(seconds(5));  // it arrived five seconds ago
  const auto sink = Run(std::move(request));
  EXPECT_EQ(sink->Only<Admitted>()->queue_time, seconds(5));
  const Usage usage = sink->Only<Completed>()->usage;
  EXPECT_EQ(usage.prompt_tokens, 10);
  EXPECT_EQ(usage.cached_tokens, 0);
  EXPECT_EQ(usage.output_tokens, 3);
  EXPECT_EQ(usage.reserved_blocks, 3);
  EXPECT_EQ(usage.peak_blocks, 3);
  EXPECT_EQ(usage.queue_time, seconds(5));
  EXPECT_EQ(usage.prefill_time, seconds(3));  // chunks of 4, 4 and 2
  EXPECT_EQ(usage.decode_time, seconds(2));
  EXPECT_EQ(usage.time_to_first_token, seconds(8));
  EXPECT_DOUBLE_EQ(usage.kv_block_seconds, 3 * 5);
  // A step that is submitted ahead has its blocks as early.
  const bool ahead = max_steps_in_flight > 1;
  EXPECT_DOUBLE_EQ(usage.held_block_seconds, ahead ? 2 + 3 + 3 + 3 + 3 : 1 + 2 + 3 + 3 + 3);
  EXPECT_DOUBLE_EQ(usage.accelerator_seconds, 5);
}

TEST_P(Billing, AFailedRequestIsBilledForWhatItUsed) {
  StartEngine({.block_tokens = 4, .max_step_tokens = 4, .step_time = seconds(1)});
  backend->FailAwait(2);
  const auto sink = Run(Request("fault", "ten tokens", 3));
  const Usage usage = sink->Only<Failed>()->usage;
  EXPECT_EQ(usage.output_tokens, 0);
  EXPECT_EQ(usage.peak_blocks, 3);
  // The step behind the one that failed takes its time, too.
  const bool ahead = max_steps_in_flight > 1;
  EXPECT_EQ(usage.prefill_time, seconds(ahead ? 4 : 3));
  EXPECT_EQ(usage.decode_time, seconds(0));
  EXPECT_EQ(usage.time_to_first_token, seconds(0));
  EXPECT_DOUBLE_EQ(usage.kv_block_seconds, ahead ? 3 * 4 : 3 * 3);
  EXPECT_DOUBLE_EQ(usage.held_block_seconds, ahead ? 2 + 3 + 3 + 3 : 1 + 2 + 3);
  EXPECT_DOUBLE_EQ(usage.accelerator_seconds, 2) << "a failed step reports no time";
}

TEST_P(Billing, ARequestThatNeverRanPaysNothingButItsWait) {
  StartEngine({.max_running_sequences = 1});
  backend->CloseGate();
  const auto first = Submit(Request("first", "p", 2));
  backend->WaitForStepAtGate();
  const auto queued = Submit(Request("queued", "four", 2));
  WaitForQueued(1);
  clock.Advance(seconds(7));
  engine->Cancel(TicketOf("queued"));
  backend->OpenGate();
  const Usage usage = queued->WaitForEnd().Only<Failed>()->usage;
  EXPECT_EQ(usage.prompt_tokens, 4);
  EXPECT_EQ(usage.queue_time, seconds(7));
  EXPECT_EQ(usage.reserved_blocks, 0);
  EXPECT_EQ(usage.kv_block_seconds, 0);
  EXPECT_EQ(usage.accelerator_seconds, 0);
  first->WaitForEnd();
}

TEST_P(Billing, SumsToTheTimeOfTheStepsHoweverManyShareThem) {
  StartEngine({.num_blocks = 64, .block_tokens = 4, .max_step_tokens = 16, .step_time = seconds(1)});
  backend->CloseGate();
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 5; ++i) sinks.push_back(Submit(Request(std::to_string(i), std::string(3 + i, 'p'), 4 + i)));
  backend->OpenGate();
  double accelerator_seconds = 0.0;
  for (const auto& sink : sinks) {
    accelerator_seconds += sink->WaitForEnd().Only<Completed>()->usage.accelerator_seconds;
  }
  EXPECT_NEAR(accelerator_seconds, static_cast<double>(backend->steps()), 1e-6);
}

TEST_P(Billing, AChoiceThatEndsIsPaidForNoLonger) {
  StartEngine({.block_tokens = 4, .max_step_tokens = 16, .step_time = seconds(1)});
  backend->set_next_token_of_choice([](std::int32_t choice, std::span<const TokenId> output) {
    return choice == 1 && output.size() == 1 ? FakeTokenizer::kEos : 'a';
  });
  TokenizedRequest request = Request("group", "four", 9);  // T = 12: one shared block, two more each
  request.spec.sampling.n = 2;
  const auto sink = Run(std::move(request));
  const Usage usage = sink->Only<Completed>()->usage;
  EXPECT_EQ(usage.reserved_blocks, 5);
  // Five blocks until the second token, then three, for nine steps in all.
  EXPECT_DOUBLE_EQ(usage.kv_block_seconds, 5 * 2 + 3 * 7);
  EXPECT_EQ(usage.output_tokens, 9 + 2);
}

TEST_P(Billing, TellsWhatWasFoundComputed) {
  StartEngine({.block_tokens = 4, .max_step_tokens = 16});
  EXPECT_EQ(Run(Request("first", "ten tokens", 2))->Only<Completed>()->usage.cached_tokens, 0);
  const auto again = Run(Request("again", "ten tokens", 2));
  EXPECT_EQ(again->Only<Admitted>()->cached_tokens, 8);
  EXPECT_EQ(again->Only<Completed>()->usage.cached_tokens, 8);
  EXPECT_EQ(again->Only<Completed>()->usage.reserved_blocks, 3) << "hits lower no reservation";
}

TEST(UsageMeter, IntegratesWhatIsHeldAndReservedOverTimeAndKeepsThePeak) {
  const TimePoint start{};
  UsageMeter meter(3, start - seconds(1));
  EXPECT_EQ(meter.At(start).queue_time, seconds(1));
  EXPECT_DOUBLE_EQ(meter.At(start).kv_block_seconds, 0.0);
  meter.Start(9, 0, start);
  meter.SetHeldBlocks(2, start + seconds(1));
  meter.SetHeldBlocks(5, start + seconds(3));
  meter.SetHeldBlocks(1, start + seconds(4));
  const Usage usage = meter.At(start + seconds(10));
  EXPECT_DOUBLE_EQ(usage.held_block_seconds, 2 * 2 + 5 * 1 + 1 * 6);
  EXPECT_EQ(usage.peak_blocks, 5);
  EXPECT_DOUBLE_EQ(usage.kv_block_seconds, 90);
  EXPECT_DOUBLE_EQ(meter.At(start + seconds(10)).held_block_seconds, usage.held_block_seconds) << "asking is free";
}

TEST(UsageMeter, CountsNothingWhileTheRequestIsParked) {
  const TimePoint start{};
  UsageMeter meter(3, start);
  meter.Start(4, 2, start);
  meter.SetHeldBlocks(3, start);
  meter.Park(start + seconds(2));
  meter.Start(3, 1, start + seconds(50));
  const Usage usage = meter.At(start + seconds(51));
  EXPECT_DOUBLE_EQ(usage.kv_block_seconds, 4 * 2 + 3 * 1);
  EXPECT_DOUBLE_EQ(usage.held_block_seconds, 3 * 2);
  EXPECT_EQ(usage.preemptions, 1);
  EXPECT_EQ(usage.reserved_blocks, 4) << "what it was admitted with";
  EXPECT_EQ(usage.cached_tokens, 2);
  EXPECT_EQ(usage.queue_time, seconds(0));
}

}  // namespace
}  // namespace berth::test
