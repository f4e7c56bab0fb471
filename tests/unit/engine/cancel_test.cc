// Cancel, at every point of a request's life.
#include <atomic>
#include <thread>

#include "engine_fixture.h"

namespace berth::test {
namespace {

using Cancel = EngineFixture;

// Ten prompt tokens in chunks of four: steps 0 to 2 are prefill, 2 draws the first token, 3 and later decode.
constexpr const char* kPrompt = "ten tokens";

TEST_F(Cancel, EndsTheRequestWithinOneStepWhereverItIs) {
  for (int steps_done = 0; steps_done < 7; ++steps_done) {
    StartEngine({.max_step_tokens = 4});
    backend->CloseGate();
    const auto sink = Submit(Request("victim", kPrompt, 20));
    for (int i = 0; i < steps_done; ++i) {
      backend->WaitForStepAtGate();
      backend->LetOneStepGo();
    }
    backend->WaitForStepAtGate();
    EXPECT_EQ(engine->load().running_requests, 1);
    engine->Cancel(TicketOf("victim"));
    backend->LetOneStepGo();
    EXPECT_EQ(sink->WaitForEnd().failure(), RefusalReason::kCancelledByClient) << steps_done;
    EXPECT_EQ(backend->seen().size(), static_cast<std::size_t>(steps_done) + 1) << "no further step was run";
    EXPECT_EQ(sink->Only<Failed>()->usage.output_tokens, std::max(0, steps_done - 1));
    EXPECT_TRUE(sink->All<Finished>().empty());
    ExpectFullCapacity();
  }
}

TEST_F(Cancel, EndsAQueuedRequestWithinOneStepOfTheRunningOne) {
  StartEngine();
  backend->CloseGate();
  const auto running = Submit(Request("running", kPrompt, 20));
  backend->WaitForStepAtGate();
  const auto queued = Submit(Request("queued", kPrompt, 20));
  const auto behind = Submit(Request("behind", kPrompt, 2));
  engine->Cancel(TicketOf("queued"));
  backend->LetOneStepGo();
  EXPECT_EQ(queued->WaitForEnd().failure(), RefusalReason::kCancelledByClient);
  EXPECT_TRUE(queued->All<Admitted>().empty());
  EXPECT_FALSE(running->ended());
  EXPECT_EQ(engine->load().queued_requests, 1);
  backend->OpenGate();
  EXPECT_EQ(running->WaitForEnd().finish_reason(), FinishReason::kLength);
  EXPECT_EQ(behind->WaitForEnd().finish_reason(), FinishReason::kLength);
}

TEST_F(Cancel, FromInsideTheSinkOnAdmittedRunsNoStep) {
  StartEngine();
  auto sink = std::make_shared<RecordingSink>();
  sink->set_hook([this](const StreamEvent& event) {
    if (std::holds_alternative<Admitted>(event)) engine->Cancel(TicketOf("hasty"));
  });
  ASSERT_FALSE(TrySubmit(Request("hasty", kPrompt, 5), sink).has_value());
  EXPECT_EQ(sink->WaitForEnd().failure(), RefusalReason::kCancelledByClient);
  EXPECT_TRUE(backend->seen().empty());
  ExpectFullCapacity();
}

TEST_F(Cancel, FromInsideTheSinkOnATokenRunsNoFurtherStep) {
  StartEngine({.max_step_tokens = 64});
  auto sink = std::make_shared<RecordingSink>();
  sink->set_hook([this, tokens = 0](const StreamEvent& event) mutable {
    if (std::holds_alternative<TokenDelta>(event) && ++tokens == 3) engine->Cancel(TicketOf("enough"));
  });
  ASSERT_FALSE(TrySubmit(Request("enough", kPrompt, 20), sink).has_value());
  EXPECT_EQ(sink->WaitForEnd().failure(), RefusalReason::kCancelledByClient);
  EXPECT_EQ(sink->token_ids().size(), 3U);
  EXPECT_EQ(backend->seen().size(), 3U);
  ExpectFullCapacity();
}

TEST_F(Cancel, TooLateChangesNothing) {
  StartEngine();
  auto sink = std::make_shared<RecordingSink>();
  sink->set_hook([this](const StreamEvent& event) {
    if (std::holds_alternative<Finished>(event) || std::holds_alternative<Completed>(event))
      engine->Cancel(TicketOf("late"));
  });
  ASSERT_FALSE(TrySubmit(Request("late", kPrompt, 3), sink).has_value());
  EXPECT_EQ(sink->WaitForEnd().finish_reason(), FinishReason::kLength);
  engine->Cancel(TicketOf("late"));
  engine->Cancel(TicketOf("late") + 1);
  ExpectFullCapacity();
}

TEST_F(Cancel, OfAnEndedRequestDoesNotReachTheNextOneOfItsId) {
  StartEngine();
  Run(Request("again", kPrompt, 2));
  const TicketNumber ended = TicketOf("again");
  backend->CloseGate();
  const auto running = Submit(Request("again", kPrompt, 2));
  backend->WaitForStepAtGate();
  engine->Cancel(ended);
  backend->OpenGate();
  EXPECT_EQ(running->WaitForEnd().finish_reason(), FinishReason::kLength);
}

TEST_F(Cancel, OfARefusedDuplicateDoesNotReachTheLiveRequestOfItsId) {
  StartEngine();
  backend->CloseGate();
  const auto live = Submit(Request("twice", kPrompt, 2));
  backend->WaitForStepAtGate();
  EXPECT_TRUE(TrySubmit(Request("twice", kPrompt, 2), std::make_shared<RecordingSink>()).has_value());
  engine->Cancel(TicketOf("twice"));
  backend->OpenGate();
  EXPECT_EQ(live->WaitForEnd().finish_reason(), FinishReason::kLength);
}

TEST_F(Cancel, ThreeHundredAbortedRequestsLeaveFullCapacity) {
  StartEngine({.max_queued_requests = 300});
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 300; ++i) {
    sinks.push_back(Submit(Request("abort" + std::to_string(i), kPrompt, 50)));
    if (i % 3 == 0) engine->Cancel(TicketOf("abort" + std::to_string(i)));
  }
  for (int i = 0; i < 300; ++i) engine->Cancel(TicketOf("abort" + std::to_string(i)));
  for (const auto& sink : sinks) sink->WaitForEnd();
  ExpectFullCapacity();
}

TEST_F(Cancel, FromManyThreadsAgainstManySubmissionsEndsEveryRequestOnce) {
  StartEngine({.max_queued_requests = 16});
  std::atomic<int> completed = 0;
  std::atomic<int> cancelled = 0;
  std::atomic<int> refused = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 40; ++i) {
        const std::string id = std::to_string(t) + "/" + std::to_string(i);
        auto sink = std::make_shared<RecordingSink>();
        if (TrySubmit(Request(id, kPrompt, 1 + i % 9), sink).has_value()) {
          ++refused;
          continue;
        }
        if (i % 2 == 0) engine->Cancel(TicketOf(id));
        sink->WaitForEnd();
        (sink->failure().has_value() ? cancelled : completed) += 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(completed + cancelled + refused, 320);
  EXPECT_GE(completed, 1);
  ExpectFullCapacity();
}

}  // namespace
}  // namespace berth::test
