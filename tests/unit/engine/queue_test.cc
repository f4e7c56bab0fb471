// Places, order and names.
#include <atomic>
#include <thread>

#include "engine_fixture.h"

namespace berth::test {
namespace {

class Queue : public BothWays<> {
 protected:
  std::variant<QueueTicket, Refusal> TakeTicket(std::string id) {
    return engine->TakeTicket({.request_id = std::move(id)});
  }
  // Starts a request that holds the only slot, and waits until it has left the queue.
  std::shared_ptr<RecordingSink> HoldTheOnlySlot() {
    backend->CloseGate();
    auto sink = Submit(Request("running", "p", 3));
    backend->WaitForStepAtGate();
    WaitForLoad([](const Engine::Load& load) { return load.running_requests() == 1; });
    return sink;
  }
};
BERTH_BOTH_WAYS(Queue);

TEST_P(Queue, GivesAsManyTicketsAsMayWait) {
  StartEngine({.max_queued_requests = 2});
  std::vector<QueueTicket> tickets;
  for (const char* id : {"a", "b"}) {
    auto ticket = TakeTicket(id);
    ASSERT_TRUE(std::holds_alternative<QueueTicket>(ticket));
    tickets.push_back(std::move(std::get<QueueTicket>(ticket)));
  }
  const auto refused = TakeTicket("c");
  ASSERT_TRUE(std::holds_alternative<Refusal>(refused));
  EXPECT_EQ(std::get<Refusal>(refused).reason, RefusalReason::kQueueFull);
  EXPECT_EQ(std::get<Refusal>(refused).limit, 2);
  EXPECT_TRUE(std::get<Refusal>(refused).retry_after.has_value());
  tickets.pop_back();
  EXPECT_TRUE(std::holds_alternative<QueueTicket>(TakeTicket("c"))) << "a dropped ticket gives its place back";
}

TEST_P(Queue, WhatRunsTakesNoPlaceInIt) {
  StartEngine({.max_running_sequences = 1, .max_queued_requests = 1});
  const auto running = HoldTheOnlySlot();
  const auto waiting = Submit(Request("waits", "p", 3));
  EXPECT_EQ(TrySubmit(Request("other", "p", 3), std::make_shared<RecordingSink>())->reason, RefusalReason::kQueueFull);
  backend->OpenGate();
  running->WaitForEnd();
  waiting->WaitForEnd();
  EXPECT_EQ(Run(Request("other", "p", 3))->finish_reason(), FinishReason::kLength);
}

TEST_P(Queue, NeverExceedsItsBoundHoweverManyArriveAtOnce) {
  constexpr int kArrivals = 300;
  constexpr int kBound = 20;
  StartEngine({.max_running_sequences = 1, .max_queued_requests = kBound});
  const auto running = HoldTheOnlySlot();
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
      EXPECT_LE(engine->load().queued_requests(), kBound);
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
  EXPECT_EQ(accepted, kBound);
  EXPECT_EQ(refused, kArrivals - kBound);
  WaitForQueued(kBound);
  EXPECT_EQ(engine->load().running_requests(), 1);
  backend->OpenGate();
  running->WaitForEnd();
  for (const auto& sink : sinks) {
    if (sink == nullptr) continue;
    EXPECT_EQ(sink->WaitForEnd().finish_reason(), FinishReason::kLength);
  }
  ExpectFullCapacity();
}

TEST_P(Queue, StartsRequestsInTheOrderOfSubmission) {
  StartEngine({.max_running_sequences = 1});
  const auto running = HoldTheOnlySlot();
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
}

TEST_P(Queue, ARequestIdIsTakenFromItsTicketUntilItsRequestHasEnded) {
  StartEngine({.max_running_sequences = 1});
  const auto running = HoldTheOnlySlot();
  const auto queued = Submit(Request("queued", "p", 3));
  const auto ticket = TakeTicket("only a ticket");
  for (const char* id : {"running", "queued", "only a ticket"}) {
    const auto refusal = TrySubmit(Request(id, "p", 3), std::make_shared<RecordingSink>());
    ASSERT_TRUE(refusal.has_value()) << id;
    EXPECT_EQ(refusal->reason, RefusalReason::kDuplicateRequestId);
    EXPECT_EQ(refusal->field, "request_id");
  }
  backend->OpenGate();
  running->WaitForEnd();
  queued->WaitForEnd();
  EXPECT_EQ(Run(Request("running", "p", 3))->finish_reason(), FinishReason::kLength);
}

TEST_P(Queue, ARefusedRequestGivesItsPlaceBack) {
  StartEngine({.max_queued_requests = 1});
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Refused(Request("large", "p", 1000)).reason, RefusalReason::kRequestTooLarge);
  }
  EXPECT_EQ(Run(Request("fits", "p", 3))->finish_reason(), FinishReason::kLength);
}

TEST_P(Queue, WhoeverHearsTheEndFindsTheIdThePlaceAndTheBlocksFree) {
  StartEngine({.max_running_sequences = 1, .max_queued_requests = 1});
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(Run(Request("same", "p", 1))->finish_reason(), FinishReason::kLength);
    ASSERT_EQ(engine->load().reserved_blocks(), 0);
    ASSERT_EQ(engine->load().running_requests(), 0);
  }
}

TEST_P(Queue, ARefusalComesWhileAStepIsInFlight) {
  StartEngine({.max_queued_requests = 8, .policy = [](Policy* policy) { policy->classes[0].max_queued_tokens = 20; }});
  backend->CloseGate();
  const auto running = Submit(Request("running", "p", 3));
  WaitForStepsAtGate();
  // By the caller's thread, by admission, by the class's bound in tokens: nobody waits for the step.
  EXPECT_EQ(Refused(Request("context", "p", 1000)).limit_name, "context_tokens");
  const auto queued = Submit(Request("queued", "four", 14));
  EXPECT_EQ(Refused(Request("tokens", "four", 14)).reason, RefusalReason::kQueueFull);
  TokenizedRequest late = Request("late", "p", 2);
  late.spec.deadline = clock.Now();
  EXPECT_EQ(Refused(std::move(late)).reason, RefusalReason::kDeadlineExceeded);
  EXPECT_EQ(backend->steps(), max_steps_in_flight);
  backend->OpenGate();
  EXPECT_EQ(queued->WaitForEnd().finish_reason(), FinishReason::kLength);
}

TEST_P(Queue, ARefusedClassIsToldBeforeAnythingElseIsDone) {
  StartEngine();
  TokenizedRequest request = Request("unknown", "p", 3);
  request.spec.service_class = 7;
  EXPECT_EQ(TrySubmit(std::move(request), std::make_shared<RecordingSink>())->reason, RefusalReason::kUnknownClass);
}

TEST_P(Queue, LoadTellsWhatRunsWaitsAndIsHeld) {
  StartEngine({.block_tokens = 4, .max_step_tokens = 4, .max_running_sequences = 1});
  EXPECT_EQ(engine->load().reserved_blocks(), 0);
  backend->CloseGate();
  const auto first = Submit(Request("first", "ten tokens", 7));
  WaitForStepsAtGate();
  const auto second = Submit(Request("second", "p", 3));
  WaitForQueued(1);
  const Engine::Load load = engine->load();
  EXPECT_EQ(load.running_requests(), 1);
  EXPECT_EQ(load.classes.at(0).running_requests, 1);
  EXPECT_EQ(load.classes.at(0).queued_requests, 1);
  EXPECT_EQ(load.held_blocks, max_steps_in_flight) << "a chunk's block each";
  EXPECT_EQ(load.reserved_blocks(), 4);
  backend->OpenGate();
  first->WaitForEnd();
  second->WaitForEnd();
}

TEST_P(Queue, ATicketThatWasMovedFromGivesNothingBack) {
  StartEngine({.max_queued_requests = 1});
  auto first = TakeTicket("first");
  const QueueTicket moved = std::move(std::get<QueueTicket>(first));
  { const QueueTicket empty = std::move(std::get<QueueTicket>(first)); }
  EXPECT_TRUE(std::holds_alternative<Refusal>(TakeTicket("second")));
}

}  // namespace
}  // namespace berth::test
