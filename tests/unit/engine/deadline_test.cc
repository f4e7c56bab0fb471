// Deadlines: an error before the first token, an early end after it.
#include "engine_fixture.h"

namespace berth::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
class Deadline : public BothWays<> {};
BERTH_BOTH_WAYS(Deadline);

TEST_P(Deadline, PassedInTheQueueEndsTheRequestWithoutARun) {
  StartEngine({.max_running_sequences = 1});
  backend->CloseGate();
  const auto running = Submit(Request("running", "p", 5));
  backend->WaitForStepAtGate();
  TokenizedRequest request = Request("waits", "p", 5);
  request.spec.deadline = clock.Now() + seconds(2);
  const auto queued = Submit(std::move(request));
  WaitForQueued(1);
  clock.Advance(seconds(2));
  backend->LetOneStepGo();
  EXPECT_EQ(queued->WaitForEnd().failure(), RefusalReason::kDeadlineExceeded);
  EXPECT_TRUE(queued->All<Admitted>().empty());
  EXPECT_FALSE(running->ended());
  backend->OpenGate();
  running->WaitForEnd();
}

TEST_P(Deadline, PassedBeforeSubmissionRunsNothing) {
  StartEngine();
  TokenizedRequest request = Request("late", "p", 5);
  request.spec.deadline = clock.Now();
  EXPECT_EQ(Run(std::move(request))->failure(), RefusalReason::kDeadlineExceeded);
  EXPECT_EQ(backend->steps(), 0);
}

TEST_P(Deadline, PassedDuringPrefillFailsTheRequest) {
  StartEngine({.max_step_tokens = 4, .step_time = seconds(1)});
  TokenizedRequest request = Request("prefill", "ten tokens", 5);
  request.spec.deadline = clock.Now() + milliseconds(1500);
  const auto sink = Run(std::move(request));
  EXPECT_EQ(sink->failure(), RefusalReason::kDeadlineExceeded);
  EXPECT_EQ(backend->steps(), 1 + max_steps_in_flight);
  EXPECT_TRUE(sink->All<TokenDelta>().empty());
  ExpectFullCapacity();
}

TEST_P(Deadline, PassedAfterTheFirstTokenFinishesWithWhatThereIs) {
  StartEngine({.max_step_tokens = 64, .step_time = seconds(1)});
  TokenizedRequest request = Request("decode", "ten tokens", 50);
  request.spec.deadline = clock.Now() + milliseconds(3500);
  const auto sink = Run(std::move(request));
  EXPECT_EQ(sink->finish_reason(), FinishReason::kDeadline);
  EXPECT_EQ(sink->token_ids().size(), 4U);
  EXPECT_EQ(sink->text().size(), 4U);
  EXPECT_EQ(sink->Only<Completed>()->usage.output_tokens, 4);
  EXPECT_EQ(sink->Only<Finished>()->stop_match.index(), 0U);
  ExpectFullCapacity();
}

TEST_P(Deadline, OfTheCallPassedAfterTheFirstTokenFailsTheRequestAndReturnsItsBlocks) {
  StartEngine({.max_step_tokens = 64, .step_time = seconds(1)});
  TokenizedRequest request = Request("late", "ten tokens", 50);
  request.spec.deadline = clock.Now() + milliseconds(3500);
  request.spec.partial_at_deadline = false;
  const auto sink = Run(std::move(request));
  EXPECT_EQ(sink->failure(), RefusalReason::kDeadlineExceeded);
  EXPECT_EQ(sink->token_ids().size(), 4U);
  EXPECT_TRUE(sink->All<Finished>().empty());
  ExpectFullCapacity();
}

TEST_P(Deadline, FlushesTextThatWasHeldBackForAStopStringOrAnUnfinishedCharacter) {
  StartEngine({.max_step_tokens = 64, .next_token = Script("abEN", 0xE4), .step_time = seconds(1)});
  TokenizedRequest request = Request("flush", "p", 50);
  request.spec.stopping.stop_strings = {"END"};
  request.spec.deadline = clock.Now() + seconds(4);
  const auto held = Run(std::move(request));
  EXPECT_EQ(held->text(), "abEN");
  EXPECT_EQ(held->token_ids().size(), 4U);

  // Anew: a step of the first request may still run, and take of the second one's time.
  StartEngine({.max_step_tokens = 64, .next_token = Script("abEN", 0xE4), .step_time = seconds(1)});
  request = Request("character", "p", 50);
  request.spec.deadline = clock.Now() + seconds(5);
  EXPECT_EQ(Run(std::move(request))->text(), "abEN\xEF\xBF\xBD");
}

TEST_P(Deadline, PassedForAGroupEndsEveryChoiceThatStillRuns) {
  StartEngine({.num_blocks = 64, .max_step_tokens = 64, .step_time = seconds(1)});
  backend->set_next_token_of_choice([](std::int32_t choice, std::span<const TokenId> output) {
    return choice == 1 && output.size() == 1 ? FakeTokenizer::kEos : 'a' + choice;
  });
  TokenizedRequest request = Request("group", "p", 50);
  request.spec.sampling.n = 3;
  request.spec.deadline = clock.Now() + milliseconds(3500);
  const auto sink = Run(std::move(request));
  const auto finished = sink->All<Finished>();
  ASSERT_EQ(finished.size(), 3U);
  for (const Finished& end : finished) {
    EXPECT_EQ(end.reason, end.index == 1 ? FinishReason::kStopToken : FinishReason::kDeadline);
  }
  EXPECT_EQ(sink->Only<Completed>()->usage.output_tokens, 4 + 2 + 4);
  EXPECT_EQ(sink->text(2), "cccc");
  ExpectFullCapacity();
}

TEST_P(Deadline, ThatCannotBeKeptIsRefusedAtOnce) {
  // One second a step, which calibration finds out; another request runs, so that there is something to judge by.
  StartEngine({.num_blocks = 64, .max_step_tokens = 16, .step_time = seconds(1), .calibration_steps = 16});
  Run(Request("calibration is over", "p", 1));
  backend->CloseGate();
  const auto running = Submit(Request("running", "p", 5));
  backend->WaitForStepAtGate();
  TokenizedRequest request = Request("hopeless", std::string(40, 'p'), 5);
  request.spec.deadline = clock.Now() + milliseconds(100);
  const Refusal refusal = Refused(std::move(request));
  EXPECT_EQ(refusal.reason, RefusalReason::kDeadlineInfeasible);
  EXPECT_EQ(refusal.remaining, milliseconds(100));
  EXPECT_GT(refusal.predicted, milliseconds(100));
  EXPECT_EQ(refusal.computed_tokens, 0);
  backend->OpenGate();
  running->WaitForEnd();
}

TEST_P(Deadline, InTheFutureChangesNothing) {
  StartEngine({.step_time = seconds(1)});
  TokenizedRequest request = Request("ample", "p", 5);
  request.spec.deadline = clock.Now() + seconds(6);
  EXPECT_EQ(Run(std::move(request))->finish_reason(), FinishReason::kLength);
}

}  // namespace
}  // namespace berth::test
