// Places, order and names.
#include <atomic>
#include <thread>

#include "engine_fixture.h"

namespace berth::test {
namespace {

using Queue = EngineFixture;

TEST_F(Queue, GivesOnePlaceToRunAndTheBoundToWait) {
  StartEngine({.max_queued_requests = 2});
  std::vector<QueueTicket> tickets;
  for (int i = 0; i < 3; ++i) {
    auto ticket = engine->TakeTicket();
    ASSERT_TRUE(std::holds_alternative<QueueTicket>(ticket));
    tickets.push_back(std::move(std::get<QueueTicket>(ticket)));
  }
  const auto refused = engine->TakeTicket();
  ASSERT_TRUE(std::holds_alternative<Refusal>(refused));
  EXPECT_EQ(std::get<Refusal>(refused).reason, RefusalReason::kQueueFull);
  EXPECT_EQ(std::get<Refusal>(refused).limit, 2);
  EXPECT_TRUE(std::get<Refusal>(refused).retry_after.has_value());
  tickets.pop_back();
  EXPECT_TRUE(std::holds_alternative<QueueTicket>(engine->TakeTicket())) << "a dropped ticket gives its place back";
}

TEST_F(Queue, WithoutAQueueOneRequestRunsAndTheOthersAreRefused) {
  StartEngine({.max_queued_requests = 0});
  backend->CloseGate();
  const auto sink = Submit(Request("only", "p", 3));
  backend->WaitForStepAtGate();
  EXPECT_EQ(TrySubmit(Request("other", "p", 3), std::make_shared<RecordingSink>())->reason, RefusalReason::kQueueFull);
  backend->OpenGate();
  sink->WaitForEnd();
  EXPECT_EQ(Run(Request("other", "p", 3))->finish_reason(), FinishReason::kLength);
}

TEST_F(Queue, NeverExceedsItsBoundHoweverManyArriveAtOnce) {
  constexpr int kArrivals = 300;
  constexpr int kBound = 20;
  StartEngine({.max_queued_requests = kBound});
  backend->CloseGate();
  std::atomic<bool> go = false;
  std::atomic<int> accepted = 0;
  std::atomic<int> refused = 0;
  std::vector<std::shared_ptr<RecordingSink>> sinks(kArrivals);
  std::vector<std::thread> threads;
  for (int i = 0; i < kArrivals; ++i) {
    sinks[static_cast<std::size_t>(i)] = std::make_shared<RecordingSink>();
    threads.emplace_back([&, i] {
      while (!go) std::this_thread::yield();
      const auto refusal = TrySubmit(Request(std::to_string(i), "p", 2), sinks[static_cast<std::size_t>(i)]);
      EXPECT_LE(engine->load().queued_requests, kBound + 1);
      if (!refusal.has_value()) {
        ++accepted;
      } else {
        EXPECT_EQ(refusal->reason, RefusalReason::kQueueFull);
        sinks[static_cast<std::size_t>(i)].reset();
        ++refused;
      }
    });
  }
  go = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(accepted, kBound + 1) << "one runs, the bound waits";
  EXPECT_EQ(refused, kArrivals - kBound - 1);
  backend->WaitForStepAtGate();
  EXPECT_EQ(engine->load().queued_requests, kBound);
  EXPECT_EQ(engine->load().running_requests, 1);
  backend->OpenGate();
  for (const auto& sink : sinks) {
    if (sink == nullptr) continue;
    EXPECT_EQ(sink->WaitForEnd().finish_reason(), FinishReason::kLength);
  }
  ExpectFullCapacity();
}

TEST_F(Queue, RunsRequestsOneAtATimeInTheOrderOfSubmission) {
  StartEngine();
  backend->CloseGate();
  std::mutex mutex;
  std::vector<std::string> order;
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (const char* id : {"a", "b", "c", "d"}) {
    auto sink = std::make_shared<RecordingSink>();
    sink->set_hook([&, id](const StreamEvent& event) {
      const std::lock_guard lock(mutex);
      if (std::holds_alternative<Admitted>(event)) order.push_back(std::string("+") + id);
      if (std::holds_alternative<Completed>(event)) order.push_back(std::string("-") + id);
    });
    ASSERT_FALSE(TrySubmit(Request(id, "p", 3), sink).has_value());
    sinks.push_back(sink);
  }
  backend->OpenGate();
  for (const auto& sink : sinks) sink->WaitForEnd();
  EXPECT_EQ(order, (std::vector<std::string>{"+a", "-a", "+b", "-b", "+c", "-c", "+d", "-d"}));
  SequenceId last = -1;
  for (const SeenStep& step : backend->seen()) {
    EXPECT_GE(step.sequence, last);
    last = step.sequence;
  }
}

TEST_F(Queue, ALiveRequestIdIsRefusedUntilTheRequestHasEnded) {
  StartEngine();
  backend->CloseGate();
  const auto running = Submit(Request("running", "p", 3));
  backend->WaitForStepAtGate();
  const auto queued = Submit(Request("queued", "p", 3));
  for (const char* id : {"running", "queued"}) {
    const auto refusal = TrySubmit(Request(id, "p", 3), std::make_shared<RecordingSink>());
    ASSERT_TRUE(refusal.has_value());
    EXPECT_EQ(refusal->reason, RefusalReason::kDuplicateRequestId);
    EXPECT_EQ(refusal->field, "request_id");
  }
  EXPECT_EQ(engine->load().queued_requests, 1);
  backend->OpenGate();
  running->WaitForEnd();
  queued->WaitForEnd();
  EXPECT_EQ(Run(Request("running", "p", 3))->finish_reason(), FinishReason::kLength);
}

TEST_F(Queue, ARefusedSubmissionGivesItsPlaceBack) {
  StartEngine({.max_queued_requests = 0});
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(TrySubmit(Request("large", "p", 1000), std::make_shared<RecordingSink>())->reason,
              RefusalReason::kRequestTooLarge);
  }
  EXPECT_EQ(Run(Request("fits", "p", 3))->finish_reason(), FinishReason::kLength);
}

TEST_F(Queue, WhoeverHearsTheEndFindsTheIdAndThePlaceFree) {
  StartEngine({.max_queued_requests = 0});
  for (int i = 0; i < 200; ++i) ASSERT_EQ(Run(Request("same", "p", 1))->finish_reason(), FinishReason::kLength);
}

TEST_F(Queue, LoadTellsWhatRunsWaitsAndIsHeld) {
  StartEngine({.block_tokens = 4, .max_step_tokens = 4});
  EXPECT_EQ(engine->load().reserved_blocks, 0);
  backend->CloseGate();
  const auto first = Submit(Request("first", "ten tokens", 7));
  backend->WaitForStepAtGate();
  const auto second = Submit(Request("second", "p", 3));
  const Engine::Load load = engine->load();
  EXPECT_EQ(load.running_requests, 1);
  EXPECT_EQ(load.queued_requests, 1);
  EXPECT_EQ(load.held_blocks, 1);
  EXPECT_EQ(load.reserved_blocks, 4);
  backend->OpenGate();
  first->WaitForEnd();
  second->WaitForEnd();
}

TEST_F(Queue, ATicketThatWasMovedFromGivesNothingBack) {
  StartEngine({.max_queued_requests = 0});
  auto first = engine->TakeTicket();
  const QueueTicket moved = std::move(std::get<QueueTicket>(first));
  { const QueueTicket empty = std::move(std::get<QueueTicket>(first)); }
  EXPECT_TRUE(std::holds_alternative<Refusal>(engine->TakeTicket()));
}

}  // namespace
}  // namespace berth::test
