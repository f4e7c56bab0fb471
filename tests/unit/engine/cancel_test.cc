// Cancel, at every point of a request's life.
#include <atomic>
#include <thread>

#include "engine_fixture.h"

namespace berth::test {
namespace {

class Cancel : public BothWays<> {};
BERTH_BOTH_WAYS(Cancel);

// Ten prompt tokens in chunks of four: steps 0 to 2 are prefill, 2 draws the first token, 3 and later decode.
constexpr const char* kPrompt = "ten tokens";

TEST_P(Cancel, EndsTheRequestWithinOneStepWhereverItIs) {
  for (int steps_done = 0; steps_done < 7; ++steps_done) {
    StartEngine({.max_step_tokens = 4});
    backend->CloseGate();
    const auto sink = Submit(Request("victim", kPrompt, 20));
    for (int i = 0; i < steps_done; ++i) {
      WaitForStepsAtGate();
      backend->LetOneStepGo();
    }
    WaitForStepsAtGate();
    WaitForLoad([](const Engine::Load& load) { return load.running_requests() == 1; });
    engine->Cancel(TicketOf("victim"));
    backend->LetOneStepGo();
    EXPECT_EQ(sink->WaitForEnd().failure(), RefusalReason::kCancelledByClient) << steps_done;
    EXPECT_EQ(backend->steps(), steps_done + max_steps_in_flight) << "no further step was run";
    EXPECT_EQ(sink->Only<Failed>()->usage.output_tokens, std::max(0, steps_done - 1));
    EXPECT_TRUE(sink->All<Finished>().empty());
    ExpectFullCapacity();
  }
}

TEST_P(Cancel, EndsAQueuedRequestWithinOneStepOfTheRunningOne) {
  StartEngine({.max_running_sequences = 1});
  backend->CloseGate();
  const auto running = Submit(Request("running", kPrompt, 20));
  WaitForStepsAtGate();
  const auto queued = Submit(Request("queued", kPrompt, 20));
  const auto behind = Submit(Request("behind", kPrompt, 2));
  engine->Cancel(TicketOf("queued"));
  WaitForQueued(2);
  backend->LetOneStepGo();
  EXPECT_EQ(queued->WaitForEnd().failure(), RefusalReason::kCancelledByClient);
  EXPECT_TRUE(queued->All<Admitted>().empty());
  EXPECT_FALSE(running->ended());
  EXPECT_EQ(engine->load().queued_requests(), 1);
  backend->OpenGate();
  EXPECT_EQ(running->WaitForEnd().finish_reason(), FinishReason::kLength);
  EXPECT_EQ(behind->WaitForEnd().finish_reason(), FinishReason::kLength);
}

TEST_P(Cancel, EndsTheRightOneOfManyAndLeavesTheOthersAlone) {
  StartEngine({.num_blocks = 64, .max_step_tokens = 16});
  backend->CloseGate();
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 8; ++i) sinks.push_back(Submit(Request(std::to_string(i), kPrompt, 10)));
  for (int i = 0; i < 8; ++i) {
    backend->WaitForStepAtGate();
    if (i % 2 == 0) engine->Cancel(TicketOf(std::to_string(i)));
    backend->LetOneStepGo();
  }
  backend->OpenGate();
  for (std::size_t i = 0; i < sinks.size(); ++i) {
    sinks[i]->WaitForEnd();
    EXPECT_EQ(sinks[i]->failure().has_value(), i % 2 == 0) << i;
    if (i % 2 != 0) {
      EXPECT_EQ(sinks[i]->token_ids().size(), 10U);
    }
  }
  ExpectFullCapacity();
}

TEST_P(Cancel, OfAGroupEndsAllItsChoices) {
  for (int steps_done = 0; steps_done < 6; ++steps_done) {
    StartEngine({.num_blocks = 32, .max_step_tokens = 4});
    backend->CloseGate();
    TokenizedRequest request = Request("group", kPrompt, 20);
    request.spec.sampling.n = 3;
    const auto sink = Submit(std::move(request));
    for (int i = 0; i < steps_done; ++i) {
      WaitForStepsAtGate();
      backend->LetOneStepGo();
    }
    WaitForStepsAtGate();
    engine->Cancel(TicketOf("group"));
    backend->LetOneStepGo();
    EXPECT_EQ(sink->WaitForEnd().failure(), RefusalReason::kCancelledByClient);
    EXPECT_EQ(backend->steps(), steps_done + max_steps_in_flight);
    EXPECT_EQ(sink->Only<Failed>()->usage.output_tokens, 3 * std::max(0, steps_done - 1));
    backend->OpenGate();
    EXPECT_EQ(engine->load().reserved_blocks(), 0);
  }
}

TEST_P(Cancel, BeforeTheSubmitOfItsTicketEndsTheRequestAllTheSame) {
  StartEngine();
  auto ticket = engine->TakeTicket({.request_id = "hasty"});
  engine->Cancel(std::get<QueueTicket>(ticket).number());
  const auto sink = std::make_shared<RecordingSink>();
  backend->CloseGate();
  engine->Submit(std::move(std::get<QueueTicket>(ticket)), Request("hasty", kPrompt, 5), sink);
  backend->OpenGate();
  EXPECT_EQ(sink->WaitForEnd().failure(), RefusalReason::kCancelledByClient);
  ExpectFullCapacity();
}

TEST_P(Cancel, FromInsideTheSinkRunsAtMostTheStepInFlight) {
  for (const std::size_t after_tokens : {0, 1, 3}) {
    StartEngine({.max_step_tokens = 64});
    backend->CloseGate();
    std::atomic<bool> cancelled = false;
    auto sink = std::make_shared<RecordingSink>();
    sink->set_hook([&, tokens = std::size_t{0}](const StreamEvent& event) mutable {
      if (std::holds_alternative<TokenDelta>(event)) ++tokens;
      if (cancelled || tokens != after_tokens) return;
      engine->Cancel(TicketOf("hasty"));
      cancelled = true;
    });
    ASSERT_FALSE(TrySubmit(Request("hasty", kPrompt, 20), sink).has_value());
    for (std::size_t i = 0; i < after_tokens; ++i) {
      WaitForStepsAtGate();
      backend->LetOneStepGo();
    }
    WaitForStepsAtGate();
    while (!cancelled) std::this_thread::yield();
    backend->OpenGate();
    EXPECT_EQ(sink->WaitForEnd().failure(), RefusalReason::kCancelledByClient);
    EXPECT_EQ(backend->steps(), static_cast<std::int64_t>(after_tokens) + max_steps_in_flight);
    EXPECT_EQ(sink->token_ids().size(), after_tokens + 1) << "what the oldest step in flight drew is not lost";
    ExpectFullCapacity();
  }
}

TEST_P(Cancel, TooLateChangesNothing) {
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

TEST_P(Cancel, OfAnEndedRequestDoesNotReachTheNextOneOfItsId) {
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

TEST_P(Cancel, ThreeHundredAbortedRequestsLeaveFullCapacity) {
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

TEST_P(Cancel, FromManyThreadsAgainstManySubmissionsEndsEveryRequestOnce) {
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
