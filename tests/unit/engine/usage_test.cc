// The bill.
#include "engine_fixture.h"

#include "engine/usage_meter.h"

namespace berth::test {
namespace {

using std::chrono::seconds;
using Billing = EngineFixture;

TEST_F(Billing, EveryNumberIsAsDocumented) {
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
  EXPECT_DOUBLE_EQ(usage.held_block_seconds, 1 + 2 + 3 + 3 + 3);
  EXPECT_DOUBLE_EQ(usage.accelerator_seconds, 5);
}

TEST_F(Billing, AFailedRequestIsBilledForWhatItUsed) {
  StartEngine({.block_tokens = 4, .max_step_tokens = 4, .step_time = seconds(1)});
  backend->FailAwait(2);
  const auto sink = Run(Request("fault", "ten tokens", 3));
  const Usage usage = sink->Only<Failed>()->usage;
  EXPECT_EQ(usage.output_tokens, 0);
  EXPECT_EQ(usage.peak_blocks, 3);
  EXPECT_EQ(usage.prefill_time, seconds(3));
  EXPECT_EQ(usage.decode_time, seconds(0));
  EXPECT_EQ(usage.time_to_first_token, seconds(0));
  EXPECT_DOUBLE_EQ(usage.kv_block_seconds, 3 * 3);
  EXPECT_DOUBLE_EQ(usage.held_block_seconds, 1 + 2 + 3);
  EXPECT_DOUBLE_EQ(usage.accelerator_seconds, 2) << "a failed step reports no time";
}

TEST_F(Billing, ARequestThatNeverRanPaysNothingButItsWait) {
  StartEngine();
  backend->CloseGate();
  const auto first = Submit(Request("first", "p", 2));
  backend->WaitForStepAtGate();
  const auto queued = Submit(Request("queued", "four", 2));
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

TEST(UsageMeter, IntegratesWhatIsHeldOverTimeAndKeepsThePeak) {
  const TimePoint start{};
  UsageMeter meter(3, 9, start - seconds(1), start);
  meter.SetHeldBlocks(2, start + seconds(1));
  meter.SetHeldBlocks(5, start + seconds(3));
  meter.SetHeldBlocks(1, start + seconds(4));
  const Usage usage = meter.At(start + seconds(10));
  EXPECT_DOUBLE_EQ(usage.held_block_seconds, 2 * 2 + 5 * 1 + 1 * 6);
  EXPECT_EQ(usage.peak_blocks, 5);
  EXPECT_DOUBLE_EQ(usage.kv_block_seconds, 90);
  EXPECT_DOUBLE_EQ(meter.At(start + seconds(10)).held_block_seconds, usage.held_block_seconds) << "asking is free";
}

}  // namespace
}  // namespace berth::test
