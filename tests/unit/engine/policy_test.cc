// A policy that changes under way.
#include <thread>

#include "engine_fixture.h"

namespace berth::test {
namespace {

class PolicyChange : public BothWays<> {
 protected:
  // Sets it and returns once it is in force.
  void Change(const std::function<void(Policy*)>& change) {
    const std::shared_ptr<const Policy> before = engine->policy();
    Policy policy = *before;
    change(&policy);
    engine->SetPolicy(std::move(policy));
    while (engine->policy() == before) std::this_thread::yield();
  }
};
BERTH_BOTH_WAYS(PolicyChange);

TEST_P(PolicyChange, IsInForceForTheNextNewcomer) {
  StartEngine();
  Change([](Policy* policy) {
    policy->classes[0].max_output_tokens = 5;
    policy->classes.push_back(policy->classes[0]);
    policy->classes[1].name = "new";
    policy->classes[1].kv_guarantee_blocks = policy->classes[1].slot_guarantee = 0;
    policy->classes[1].kv_borrowing_limit_blocks = 4;
    policy->classes[1].preemptible = true;
  });
  EXPECT_EQ(Refused(Request("long", "p", 6)).limit_name, "max_output_tokens");
  TokenizedRequest request = Request("new", "p", 5);
  request.spec.service_class = 1;
  EXPECT_EQ(Run(std::move(request))->finish_reason(), FinishReason::kLength);
  EXPECT_EQ(engine->load().classes.size(), 2U);
}

TEST_P(PolicyChange, EndsNothingThatRunsAndWhatWaitsAndCanNoLongerStart) {
  StartEngine({.max_running_sequences = 1});
  backend->CloseGate();
  const auto running = Submit(Request("running", "p", 30));
  backend->WaitForStepAtGate();
  const auto large = Submit(Request("large", "p", 30));
  const auto small = Submit(Request("small", "p", 3));
  WaitForQueued(2);
  const std::shared_ptr<const Policy> before = engine->policy();
  Policy policy = *before;
  policy.classes[0].kv_guarantee_blocks = 2;
  policy.classes[0].kv_lending_limit_blocks = 0;
  engine->SetPolicy(policy);
  EXPECT_EQ(engine->policy(), before) << "a step is in flight";
  backend->OpenGate();
  EXPECT_EQ(large->WaitForEnd().failure(), RefusalReason::kRequestTooLarge);
  EXPECT_EQ(running->WaitForEnd().finish_reason(), FinishReason::kLength);
  EXPECT_EQ(small->WaitForEnd().finish_reason(), FinishReason::kLength);
}

TEST_P(PolicyChange, AHeldClassWaitsAndGoesOn) {
  StartEngine({.max_running_sequences = 1});
  backend->CloseGate();
  const auto running = Submit(Request("running", "p", 3));
  backend->WaitForStepAtGate();
  const auto waiting = Submit(Request("waiting", "p", 3));
  WaitForQueued(1);
  Policy held = *engine->policy();
  held.classes[0].stop = ClassStop::kHold;
  engine->SetPolicy(held);
  backend->OpenGate();
  EXPECT_EQ(running->WaitForEnd().finish_reason(), FinishReason::kLength);
  EXPECT_EQ(TrySubmit(Request("newcomer", "p", 3), std::make_shared<RecordingSink>())->reason,
            RefusalReason::kClassOnHold);
  EXPECT_FALSE(waiting->ended());
  Change([](Policy* policy) { policy->classes[0].stop = ClassStop::kNone; });
  EXPECT_EQ(waiting->WaitForEnd().finish_reason(), FinishReason::kLength);
}

TEST_P(PolicyChange, AHeldRequestStillHearsOfItsDeadlineItsCancelAndTheDrain) {
  StartEngine();
  Change([](Policy* policy) { policy->max_running_sequences = policy->classes[0].slot_guarantee = 1; });
  backend->CloseGate();
  const auto running = Submit(Request("running", "p", 3));
  backend->WaitForStepAtGate();
  TokenizedRequest late = Request("late", "p", 3);
  late.spec.deadline = clock.Now() + std::chrono::hours(1);
  const auto overdue = Submit(std::move(late));
  const auto cancelled = Submit(Request("cancelled", "p", 3));
  const auto drained = Submit(Request("drained", "p", 3));
  WaitForQueued(3);
  Policy held = *engine->policy();
  held.classes[0].stop = ClassStop::kHold;
  engine->SetPolicy(held);
  backend->OpenGate();
  running->WaitForEnd();
  clock.Advance(std::chrono::hours(1));
  EXPECT_EQ(overdue->WaitForEnd().failure(), RefusalReason::kDeadlineExceeded);
  engine->Cancel(TicketOf("cancelled"));
  EXPECT_EQ(cancelled->WaitForEnd().failure(), RefusalReason::kCancelledByClient);
  engine->Shutdown(Duration::zero());
  EXPECT_EQ(drained->WaitForEnd().failure(), RefusalReason::kDrainTimeout);
}

}  // namespace
}  // namespace berth::test
