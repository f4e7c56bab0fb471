// How a server ends when the backend does not.
#include "cli/serve_drain.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "../frontend/server_fixture.h"
#include "cli/outcome.h"

namespace berth {
namespace {

const cli::DrainTimes kNoTime{{Duration::zero()}, {Duration::zero()}};

class ImpatientServerTest : public ServerTest {
 protected:
  FrontendOptions Options() override {
    FrontendOptions options = ServerTest::Options();
    options.last_step_time = std::chrono::milliseconds(20);
    return options;
  }
};
using ServeDrainDeathTest = ImpatientServerTest;

TEST_F(ServeDrainDeathTest, AStepThatNeverEndsDoesNotKeepTheProcessFromExitingWithAFault) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto serve_until_told = [this] {
    backend_.CloseGate();
    const Held held = StartHeld("stuck");
    backend_.WaitForStepAtGate();
    if (!cli::DrainServer(SIGTERM, kNoTime, server_.get())) cli::ExitInMidStep();
    _exit(cli::kExitOk);
  };
  EXPECT_EXIT(serve_until_told(), testing::ExitedWithCode(cli::kExitFault), "");
}

TEST_F(ImpatientServerTest, AStepThatEndsInTimeLetsADrainEnd) {
  backend_.CloseGate();
  Held held = StartHeld("late");
  backend_.WaitForStepAtGate();
  backend_.OpenGate();
  EXPECT_TRUE(cli::DrainServer(SIGTERM, kNoTime, server_.get()));
  held.status.wait();
}

}  // namespace
}  // namespace berth
