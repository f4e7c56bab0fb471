// A backend that fails.
#include <atomic>
#include <thread>

#include "engine/synthetic_steps.h"
#include "engine_fixture.h"
#include "kv/block_pool.h"

namespace berth::test {
namespace {

class Fault : public BothWays<> {
 protected:
  // The step that found the backend well again is one of the engine's own, on a block that goes back at the turn's end.
  void WaitForTheProbesBlock() const {
    while (engine->load().held_blocks > 0) std::this_thread::yield();
  }
};
BERTH_BOTH_WAYS(Fault);

TEST_P(Fault, OfAnyStepFailsTheRequestAndReturnsItsBlocks) {
  for (const bool in_submit : {true, false}) {
    for (const std::int64_t step : {0, 1, 2, 3, 5}) {
      StartEngine({.max_step_tokens = 4});
      if (in_submit) {
        backend->FailSubmit(step);
      } else {
        backend->FailAwait(step);
      }
      const auto sink = Run(Request("unlucky", "ten tokens", 10));
      EXPECT_EQ(sink->failure(), RefusalReason::kBackendFault);
      EXPECT_NE(sink->Only<Failed>()->refusal.message.find("was told to fail"), std::string::npos);
      EXPECT_EQ(backend->steps(), in_submit ? step + 1 : step + max_steps_in_flight);
      EXPECT_FALSE(engine->serving());
      ExpectFullCapacity();
      EXPECT_TRUE(engine->serving()) << "a later step succeeded";
    }
  }
}

TEST_P(Fault, EndsOnlyTheRequestsThatTheStepTouched) {
  for (const bool in_submit : {true, false}) {
    StartEngine({.max_step_tokens = 4});
    backend->CloseGate();
    const auto first = Submit(Request("first", "seven77", 5));
    WaitForStepsAtGate();  // 4 tokens of the first prompt
    const auto second = Submit(Request("second", "second prompt", 5));
    WaitForQueued(1);
    backend->LetOneStepGo();
    WaitForStepsAtGate();  // 3 of the first, and what is left for the second
    const auto third = Submit(Request("third", "third prompt", 5));
    WaitForQueued(1);
    // The next step decodes the first and goes on with the second; nothing is left for the third.
    if (in_submit) {
      backend->FailSubmit(1 + max_steps_in_flight);
    } else {
      backend->FailAwait(2);
    }
    backend->OpenGate();
    EXPECT_EQ(first->WaitForEnd().failure(), RefusalReason::kBackendFault);
    EXPECT_EQ(second->WaitForEnd().failure(), RefusalReason::kBackendFault);
    EXPECT_EQ(third->WaitForEnd().finish_reason(), FinishReason::kLength);
    EXPECT_TRUE(engine->serving());
    ExpectFullCapacity();
  }
}

TEST_P(Fault, TheNextQueuedRequestGetsItsTry) {
  StartEngine({.max_step_tokens = 64, .max_running_sequences = 1});
  backend->CloseGate();
  backend->FailAwait(1);
  const auto first = Submit(Request("first", "p", 10));
  backend->WaitForStepAtGate();
  const auto second = Submit(Request("second", "p", 3));
  backend->OpenGate();
  EXPECT_EQ(first->WaitForEnd().failure(), RefusalReason::kBackendFault);
  EXPECT_EQ(second->WaitForEnd().finish_reason(), FinishReason::kLength);
  EXPECT_TRUE(engine->serving());
}

TEST_P(Fault, AFreshFaultFailsTheNextRequestToo) {
  StartEngine();
  backend->FailSubmit(0);
  backend->FailAwait(1);
  EXPECT_EQ(Run(Request("first", "p", 3))->failure(), RefusalReason::kBackendFault);
  EXPECT_FALSE(engine->serving());
  EXPECT_EQ(Run(Request("second", "p", 3))->failure(), RefusalReason::kBackendFault);
  EXPECT_FALSE(engine->serving());
  EXPECT_EQ(Run(Request("third", "p", 3))->finish_reason(), FinishReason::kLength);
  EXPECT_TRUE(engine->serving());
}

TEST_P(Fault, AnAnswerThatWasCompleteBeforeItIsNotTakenBack) {
  StartEngine({.max_step_tokens = 64, .next_token = Script("ab END cd", 'x')});
  backend->CloseGate();
  backend->FailAwait(6);  // the step behind the one that completes the stop string
  TokenizedRequest request = Request("complete", "p", 50);
  request.spec.stopping.stop_strings = {"END"};
  auto sink = std::make_shared<RecordingSink>();
  std::atomic<bool> finished = false;
  sink->set_hook([&](const StreamEvent& event) { finished = finished || std::holds_alternative<Finished>(event); });
  ASSERT_FALSE(TrySubmit(std::move(request), sink).has_value());
  for (int i = 0; i < 6; ++i) {
    backend->WaitForStepAtGate();
    backend->LetOneStepGo();
  }
  backend->WaitForStepAtGate();
  while (!finished) std::this_thread::yield();
  backend->OpenGate();
  EXPECT_EQ(sink->WaitForEnd().finish_reason(), FinishReason::kStopString);
  EXPECT_EQ(sink->text(), "ab ");
  EXPECT_FALSE(engine->serving());
}

TEST_P(Fault, IsOverWithoutTrafficOnceTheBackendIsBack) {
  StartEngine({.probe_interval = std::chrono::milliseconds(1)});
  backend->SetBroken(true);
  EXPECT_EQ(Run(Request("unlucky", "p", 3))->failure(), RefusalReason::kBackendFault);
  const std::int64_t steps = backend->steps();
  while (backend->steps() < steps + 3) std::this_thread::yield();
  EXPECT_FALSE(engine->serving()) << "it is tried, and fails";
  backend->SetBroken(false);
  while (!engine->serving()) std::this_thread::yield();
  WaitForTheProbesBlock();
  ExpectFullCapacity();
}

TEST_P(Fault, AtTheStartIsToldAndTriedAgain) {
  StartEngine({.max_step_tokens = 8,
               .calibration_steps = 4,
               .probe_interval = std::chrono::milliseconds(1),
               .broken_at_the_start = true});
  while (backend->steps() < 3) std::this_thread::yield();
  EXPECT_FALSE(engine->serving());
  backend->SetBroken(false);
  while (!engine->serving()) std::this_thread::yield();
  WaitForTheProbesBlock();
  ExpectFullCapacity();
}

TEST_P(Fault, IsTriedAgainAlsoWhileWhatWaitsMayNotStart) {
  StartEngine({.max_running_sequences = 1, .probe_interval = std::chrono::milliseconds(1)});
  backend->CloseGate();
  const auto running = Submit(Request("running", "p", 3));
  backend->WaitForStepAtGate();
  const auto waiting = Submit(Request("waiting", "p", 3));
  Policy held = *engine->policy();
  held.classes[0].stop = ClassStop::kHold;
  engine->SetPolicy(held);
  backend->SetBroken(true);
  backend->OpenGate();
  EXPECT_EQ(running->WaitForEnd().failure(), RefusalReason::kBackendFault);
  backend->SetBroken(false);
  while (!engine->serving()) std::this_thread::yield();
  held.classes[0].stop = ClassStop::kNone;
  engine->SetPolicy(held);
  EXPECT_EQ(waiting->WaitForEnd().finish_reason(), FinishReason::kLength);
}

RunStep RunOn(FakeBackend* backend) {
  return [backend](const StepPlan& plan, StepResult* result) {
    absl::Status status = backend->Submit(plan);
    return status.ok() ? backend->Await(result) : status;
  };
}

TEST(Calibration, TeachesTheCostModelAndLeavesNoTrace) {
  BackendInfo info;
  info.pool = {.num_blocks = 200, .block_tokens = 16};
  info.vocab_size = 300;
  info.max_context_tokens = 4096;
  info.max_step_tokens = 64;
  FakeBackend backend(info, HashedLetter, nullptr, std::chrono::milliseconds(7));
  BlockPool pool(info.pool);
  StepCostModel model;
  ASSERT_EQ(Calibrate(16, 64, info, RunOn(&backend), &pool, &model), absl::OkStatus());
  EXPECT_EQ(backend.steps(), 16);
  const StepWork decode{.decode_sequences = 3, .decode_kv_tokens = 60};
  EXPECT_NEAR(ToSeconds(model.Predict(decode)), 0.007, 0.002);
  EXPECT_EQ(pool.live_blocks() + pool.unspent_blocks() + pool.cached_blocks(), 0);
}

TEST(Calibration, KeepsToWhatPoolPolicyAndStepsAllow) {
  BackendInfo info;
  info.pool = {.num_blocks = 3, .block_tokens = 4};
  info.vocab_size = 300;
  info.max_context_tokens = 20;
  info.max_step_tokens = 9;
  FakeBackend backend(info);
  BlockPool pool(info.pool);
  StepCostModel model;
  ASSERT_EQ(Calibrate(16, 2, info, RunOn(&backend), &pool, &model), absl::OkStatus());
  EXPECT_GT(backend.steps(), 0);
  for (const SeenRow& row : backend.seen()) {
    EXPECT_LE(row.first_position + row.num_tokens, 12);
    EXPECT_LE(row.num_tokens, 9);
  }
}

}  // namespace
}  // namespace berth::test
