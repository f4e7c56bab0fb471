// Draining.
#include <thread>

#include "engine_fixture.h"

namespace berth::test {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

class Shutdown : public BothWays<> {
 protected:
  // Starts Shutdown on a thread of its own and returns once newcomers are refused.
  std::thread Drain(Duration timeout) {
    std::thread thread([this, timeout] { engine->Shutdown(timeout); });
    while (engine->serving()) std::this_thread::yield();
    return thread;
  }
};
BERTH_BOTH_WAYS(Shutdown);

TEST_P(Shutdown, LetsWhatRunsAndWaitsFinishAndRefusesNewcomers) {
  StartEngine();
  backend->CloseGate();
  const auto running = Submit(Request("running", "p", 5));
  backend->WaitForStepAtGate();
  const auto queued = Submit(Request("queued", "p", 5));
  std::thread draining = Drain(hours(1));
  const auto ticket = engine->TakeTicket({.request_id = "newcomer"});
  ASSERT_TRUE(std::holds_alternative<Refusal>(ticket));
  EXPECT_EQ(std::get<Refusal>(ticket).reason, RefusalReason::kDraining);
  backend->OpenGate();
  draining.join();
  EXPECT_TRUE(running->ended());
  EXPECT_EQ(running->finish_reason(), FinishReason::kLength);
  EXPECT_EQ(queued->finish_reason(), FinishReason::kLength);
}

TEST_P(Shutdown, EndsTheRestOnceItsTimeIsOver) {
  StartEngine({.max_running_sequences = 1});
  backend->CloseGate();
  const auto running = Submit(Request("running", "ten tokens", 5));
  WaitForStepsAtGate();
  const auto queued = Submit(Request("queued", "p", 5));
  std::thread draining = Drain(seconds(10));
  backend->LetOneStepGo();
  WaitForStepsAtGate();
  EXPECT_FALSE(running->ended());
  clock.Advance(seconds(10));
  backend->LetOneStepGo();
  running->WaitForEnd();
  backend->OpenGate();
  draining.join();
  EXPECT_EQ(running->failure(), RefusalReason::kDrainTimeout);
  EXPECT_EQ(queued->failure(), RefusalReason::kDrainTimeout);
  EXPECT_EQ(backend->steps(), 1 + max_steps_in_flight);
  EXPECT_EQ(engine->load().reserved_blocks(), 0);
}

TEST_P(Shutdown, IsIdempotentAndTheShortestTimeoutHolds) {
  StartEngine();
  engine->Shutdown(hours(1));
  engine->Shutdown(Duration::max());

  StartEngine();
  backend->CloseGate();
  const auto running = Submit(Request("running", "p", 50));
  backend->WaitForStepAtGate();
  std::thread patient = Drain(Duration::max());
  std::thread impatient([this] { engine->Shutdown(Duration::zero()); });
  // The second call has arrived when a step ends without a successor; until then steps go on.
  while (!running->ended()) {
    backend->LetOneStepGo();
    std::this_thread::yield();
  }
  backend->OpenGate();
  patient.join();
  impatient.join();
  EXPECT_FALSE(engine->serving());
}

TEST_P(Shutdown, RefusesATicketThatWasTakenBefore) {
  StartEngine();
  auto ticket = engine->TakeTicket({.request_id = "late"});
  engine->Shutdown(hours(1));
  const auto sink = std::make_shared<RecordingSink>();
  engine->Submit(std::move(std::get<QueueTicket>(ticket)), Request("late", "p", 5), sink);
  EXPECT_EQ(sink->WaitForEnd().failure(), RefusalReason::kDraining);
}

TEST_P(Shutdown, TheDestructorEndsWhatIsLeft) {
  StartEngine();
  backend->CloseGate();
  const auto running = Submit(Request("running", "p", 50));
  backend->WaitForStepAtGate();
  const auto queued = Submit(Request("queued", "p", 50));
  std::thread ending([this] { engine.reset(); });
  backend->OpenGate();
  ending.join();
  EXPECT_TRUE(running->ended());
  EXPECT_TRUE(queued->ended());
}

TEST_P(Shutdown, HoldsNoSinkOnceItHasReturned) {
  StartEngine();
  auto sink = Submit(Request("one", "p", 5));
  const std::weak_ptr<RecordingSink> observer = sink;
  sink.reset();
  engine->Shutdown(hours(1));
  EXPECT_TRUE(observer.expired());
}

using ShutdownDeathTest = EngineFixture;

TEST_F(ShutdownDeathTest, ATicketThatOutlivesTheEngineIsABug) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        StartEngine();
        auto ticket = engine->TakeTicket({.request_id = "r"});
        engine.reset();
      },
      "a queue ticket outlives the engine");
}

}  // namespace
}  // namespace berth::test
