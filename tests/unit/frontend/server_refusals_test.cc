// What the server refuses, and what ends early.
#include <gmock/gmock.h>

#include <future>
#include <string>
#include <thread>
#include <vector>

#include "server_fixture.h"

namespace berth {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(ServerTest, MoreChoicesThanTheServerRunsAreInvalid) {
  v1::GenerateRequest request = Request("Hello");
  request.mutable_sampling()->set_n(3);
  const grpc::Status status = Generate(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ReasonOf(status), "INVALID_REQUEST");
  EXPECT_EQ(Detail<google::rpc::BadRequest>(status)->field_violations(0).field(), "sampling.n");
}

TEST_F(ServerTest, ARefusalIsAStatusWithDetailsAndNothingElse) {
  grpc::ClientContext context;
  v1::GenerateRequest request = Request("Hello");
  request.set_request_id("mine");
  request.mutable_sampling()->set_top_p(1.5F);
  auto reader = stub_->GenerateStream(&context, request);
  v1::GenerateStreamResponse message;
  EXPECT_FALSE(reader->Read(&message));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), StartsWith("sampling.top_p is 1.5"));
  EXPECT_EQ(ReasonOf(status), "INVALID_REQUEST");
  EXPECT_EQ(Detail<google::rpc::RequestInfo>(status)->request_id(), "mine");
  EXPECT_EQ(Detail<google::rpc::BadRequest>(status)->field_violations(0).field(), "sampling.top_p");
  EXPECT_EQ(Trailer(context, "grpc-retry-pushback-ms"), "-1");
  EXPECT_FALSE(Trailer(context, "berth-usage-bin").has_value());
}

TEST_F(ServerTest, BytesThatAreNoRequestAreAnInvalidArgument) {
  for (const char* method :
       {"Generate", "GenerateStream", "EstimateDemand", "Tokenize", "Detokenize", "GetModelInfo"}) {
    const grpc::Status status = CallRaw(std::string("/berth.v1.Inference/") + method, "\x0a\x05oops");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_EQ(ReasonOf(status), "INVALID_REQUEST") << method;
  }
  // Field 3 is `text`; 0xFF is never UTF-8.
  const grpc::Status status = CallRaw("/berth.v1.Inference/Generate", "\x1a\x01\xff");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("UTF-8"));
}

TEST_F(ServerTest, AMessageBeyondTheBoundIsRefused) {
  const grpc::Status status = Generate(Request(std::string((1 << 20) + 1, 'x')));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(ServerTest, TheRequestBeyondTheQueuesBoundIsRefusedAndMayComeBack) {
  backend_.CloseGate();
  std::vector<Held> held;
  held.push_back(StartHeld("running"));
  backend_.WaitForStepAtGate();
  // The class has two places for those who wait, also for a second sequence that could run in the next step.
  for (int i = 0; i < 2; ++i) held.push_back(StartHeld("queued-" + std::to_string(i)));
  while (engine_->load().queued_requests() < 2) std::this_thread::yield();

  grpc::ClientContext context;
  const grpc::Status status = Generate(Request("one more"), nullptr, &context);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonOf(status), "QUEUE_FULL");
  const auto metadata = Detail<google::rpc::ErrorInfo>(status)->metadata();
  EXPECT_EQ(metadata.at("limitName"), "queue.max_requests");
  EXPECT_EQ(metadata.at("limitRequests"), "2");
  EXPECT_TRUE(Detail<google::rpc::RetryInfo>(status).has_value());
  EXPECT_GE(std::stoi(Trailer(context, "grpc-retry-pushback-ms").value_or("0")), 100);

  backend_.OpenGate();
  for (Held& request : held) EXPECT_TRUE(request.status.get().ok());
}

TEST_F(ServerTest, ALiveRequestIdIsNotGivenTwice) {
  backend_.CloseGate();
  Held held = StartHeld("twin");
  backend_.WaitForStepAtGate();
  v1::GenerateRequest request = Request("Hello");
  request.set_request_id("twin");
  const grpc::Status status = Generate(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(ReasonOf(status), "DUPLICATE_REQUEST_ID");
  backend_.OpenGate();
  EXPECT_TRUE(held.status.get().ok());
}

TEST_F(ServerTest, ACancelledCallGivesItsPlaceAndBlocksBack) {
  backend_.CloseGate();
  Held running = StartHeld("running");
  backend_.WaitForStepAtGate();
  Held queued = StartHeld("queued");
  while (engine_->load().queued_requests() < 1) std::this_thread::yield();
  queued.context->TryCancel();
  EXPECT_EQ(queued.status.get().error_code(), grpc::StatusCode::CANCELLED);
  running.context->TryCancel();
  EXPECT_EQ(running.status.get().error_code(), grpc::StatusCode::CANCELLED);
  backend_.OpenGate();
  while (engine_->load().running_requests() + engine_->load().queued_requests() > 0) std::this_thread::yield();
  EXPECT_EQ(engine_->load().held_blocks, 0);
  EXPECT_EQ(engine_->load().reserved_blocks(), 0);
  EXPECT_TRUE(Generate(Request("after")).ok());
}

TEST_F(ServerTest, AGrpcDeadlineEndsTheRequestOnTheServerToo) {
  backend_.CloseGate();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  EXPECT_EQ(Generate(Request("late"), nullptr, &context).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  backend_.OpenGate();
  while (engine_->load().running_requests() > 0) std::this_thread::yield();
  EXPECT_EQ(engine_->load().reserved_blocks(), 0);
}

TEST_F(ServerTest, ATimeoutBeforeTheFirstTokenIsADeadlineStatusWithUsage) {
  backend_.CloseGate();
  auto answer = std::async(std::launch::async, [this] {
    v1::GenerateRequest request = Request(std::string(600, 'x'));  // two steps of prefill
    request.mutable_timeout()->set_seconds(5);
    grpc::ClientContext context;
    grpc::Status status = Generate(request, nullptr, &context);
    EXPECT_TRUE(Trailer(context, "berth-usage-bin").has_value());
    return status;
  });
  backend_.WaitForStepAtGate();
  clock_.Advance(std::chrono::seconds(6));
  backend_.OpenGate();
  const grpc::Status status = answer.get();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(ReasonOf(status), "DEADLINE_EXCEEDED");
}

}  // namespace
}  // namespace berth
