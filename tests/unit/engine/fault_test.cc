// A backend that fails.
#include "engine_fixture.h"

namespace berth::test {
namespace {

using Fault = EngineFixture;

TEST_F(Fault, OfAnyStepFailsTheRunningRequestAndReturnsItsBlocks) {
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
      EXPECT_EQ(backend->seen().size(), static_cast<std::size_t>(step) + 1);
      EXPECT_FALSE(engine->serving());
      ExpectFullCapacity();
      EXPECT_TRUE(engine->serving()) << "a later step succeeded";
    }
  }
}

TEST_F(Fault, TheNextQueuedRequestGetsItsTry) {
  StartEngine({.max_step_tokens = 64});
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

TEST_F(Fault, AFreshFaultFailsTheNextRequestToo) {
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

}  // namespace
}  // namespace berth::test
