// How the server starts, ends and says how it is.
#include <gmock/gmock.h>

#include <string>
#include <thread>

#include "cli/client/client.h"
#include "server_fixture.h"

namespace berth {
namespace {

using ::testing::HasSubstr;

TEST_F(ServerTest, ABackendFaultIsToldAndTurnsReadinessOff) {
  EXPECT_EQ(CheckHealth("readiness"), Health::kServing);
  backend_.FailAwait(0);
  const grpc::Status status = Generate(Request("Hello"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(ReasonOf(status), "BACKEND_FAULT");
  while (CheckHealth("readiness") != Health::kNotServing) std::this_thread::yield();
  EXPECT_EQ(CheckHealth("liveness"), Health::kServing);
  ASSERT_TRUE(Generate(Request("Hello")).ok());
  while (CheckHealth("readiness") != Health::kServing) std::this_thread::yield();
}

TEST_F(ServerTest, HealthKnowsItsServicesAndNoOthers) {
  for (const char* name : {"", "berth.v1.Inference", "liveness", "readiness"}) {
    EXPECT_EQ(CheckHealth(name), Health::kServing) << name;
  }
  EXPECT_EQ(CheckHealth("berth.v1.Nothing"), Health::kUnknown);
}

TEST_F(ServerTest, AShutdownLetsWhatRunsFinishAndRefusesNewcomers) {
  backend_.CloseGate();
  Held held = StartHeld("running");
  backend_.WaitForStepAtGate();
  std::thread shutdown([this] { server_->Shutdown(std::chrono::minutes(1)); });
  while (CheckHealth("readiness") != Health::kNotServing) std::this_thread::yield();
  EXPECT_EQ(CheckHealth(""), Health::kNotServing);
  EXPECT_EQ(CheckHealth("liveness"), Health::kServing);
  const grpc::Status status = Generate(Request("newcomer"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonOf(status), "DRAINING");
  v1::GetModelInfoResponse info;
  grpc::ClientContext context;
  EXPECT_EQ(stub_->GetModelInfo(&context, {}, &info).error_code(), grpc::StatusCode::UNAVAILABLE);
  backend_.OpenGate();
  EXPECT_TRUE(held.status.get().ok());
  shutdown.join();
  server_->Shutdown(Duration::zero());
}

TEST_F(ServerTest, AShutdownWithNoTimeEndsWhatRunsWithDrainTimeout) {
  backend_.CloseGate();
  Held held = StartHeld("running");
  backend_.WaitForStepAtGate();
  std::thread shutdown([this] { server_->Shutdown(Duration::zero()); });
  while (engine_->serving()) std::this_thread::yield();
  backend_.OpenGate();
  const grpc::Status status = held.status.get();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonOf(status), "DRAIN_TIMEOUT");
  shutdown.join();
}

TEST_F(ServerTest, APortInUseIsOneClearLine) {
  FrontendOptions options = Options();
  options.listen_address = server_->address();
  const auto second = GrpcServer::Start(options, engine_.get(), &tokenizer_, &clock_);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("cannot listen on " + server_->address() + ": the port is in use"));
}

TEST_F(ServerTest, AUnixSocketServesToo) {
  FrontendOptions options = Options();
  options.listen_address = "unix:" + testing::TempDir() + "/berth-server-" + std::to_string(::getpid());
  auto second = GrpcServer::Start(options, engine_.get(), &tokenizer_, &clock_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->address(), options.listen_address);
  GenerateSpec spec;
  spec.prompt_text = "Hello";
  spec.stopping.max_output_tokens = 2;
  ClientOptions client;
  client.connection.address = options.listen_address;
  EXPECT_TRUE(GenerateClient(client).GenerateStream(spec, [](const StreamEvent&) {}).ok());
}

}  // namespace
}  // namespace berth
