// Slow readers, and what the metrics are told.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "frontend/rpc_methods.h"
#include "server_fixture.h"

namespace berth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SlowReaderTest : public ServerTest {
 protected:
  SlowReaderTest() : ServerTest(test::Script(std::vector<TokenId>(), test::FakeTokenizer::kFirstPiece)) {}
};

TEST_F(SlowReaderTest, AReaderWhoDoesNotReadLosesTheStreamAndNobodyElseWaits) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 65535);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  auto stub = v1::Inference::NewStub(Connect(arguments));
  backend_.CloseGate();
  grpc::ClientContext context;
  auto reader = stub->GenerateStream(&context, Request("Hello", 15'000));
  v1::GenerateStreamResponse message;
  ASSERT_TRUE(reader->Read(&message));
  for (int i = 0; i < 300; ++i) {
    backend_.WaitForStepAtGate();
    backend_.LetOneStepGo();
  }
  backend_.WaitForStepAtGate();
  // Time goes by, and the request goes on until the server takes the stream away. Not so fast that it is through by
  // then.
  while (engine_->load().running_requests() > 0) {
    clock_.Advance(std::chrono::seconds(1));
    backend_.LetOneStepGo();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  while (reader->Read(&message)) {
    EXPECT_FALSE(message.has_completed());
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("SLOW_READER"));
  backend_.OpenGate();
  EXPECT_TRUE(Generate(Request("others"), nullptr).ok());
  // The engine has let go of it, so the call is over soon.
  while (metrics_.told().ends.size() < 2) std::this_thread::yield();
  const auto ends = metrics_.told().ends;
  const auto slow = std::find_if(ends.begin(), ends.end(), [](const auto& end) { return end.refusal().has_value(); });
  ASSERT_NE(slow, ends.end());
  EXPECT_EQ(slow->refusal(), RefusalReason::kSlowReader);
  EXPECT_GE(slow->told.usage.output_tokens, 300) << "what it used is told";
}

TEST_F(ServerTest, EveryCallIsToldToTheMetricsWithItsMethodAndItsStatus) {
  ASSERT_TRUE(Generate(Request("Hello")).ok());
  v1::GenerateRequest unknown_class = Request("Hello");
  unknown_class.set_service_class("no such class");
  grpc::ClientContext stream_context;
  auto reader = stub_->GenerateStream(&stream_context, unknown_class);
  v1::GenerateStreamResponse message;
  EXPECT_FALSE(reader->Read(&message));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto call = [](auto method, auto request, auto response) {
    grpc::ClientContext context;
    return method(&context, request, &response).error_code();
  };
  const auto tokenize = [this](auto... arguments) { return stub_->Tokenize(arguments...); };
  const auto detokenize = [this](auto... arguments) { return stub_->Detokenize(arguments...); };
  const auto info = [this](auto... arguments) { return stub_->GetModelInfo(arguments...); };
  const auto estimate = [this](auto... arguments) { return stub_->EstimateDemand(arguments...); };
  v1::DetokenizeRequest unknown_id;
  unknown_id.add_token_ids(1'000'000);
  EXPECT_EQ(call(tokenize, v1::TokenizeRequest(), v1::TokenizeResponse()), grpc::StatusCode::OK);
  EXPECT_EQ(call(detokenize, unknown_id, v1::DetokenizeResponse()), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(call(info, v1::GetModelInfoRequest(), v1::GetModelInfoResponse()), grpc::StatusCode::OK);
  EXPECT_EQ(call(estimate, v1::EstimateDemandRequest(), v1::EstimateDemandResponse()),
            grpc::StatusCode::INVALID_ARGUMENT);

  const auto told = metrics_.told();
  const auto method = [](const std::string& name) { return RpcMethodOf("berth.v1.Inference/" + name); };
  EXPECT_THAT(told.rpc_ends, ElementsAre(std::pair(method("Generate"), 0), std::pair(method("GenerateStream"), 3),
                                         std::pair(method("Tokenize"), 0), std::pair(method("Detokenize"), 3),
                                         std::pair(method("GetModelInfo"), 0), std::pair(method("EstimateDemand"), 3)));
  EXPECT_EQ(told.rpc_starts.size(), told.rpc_ends.size());
  ASSERT_EQ(told.ends.size(), 2U) << "Generate and GenerateStream alone are requests";
  EXPECT_EQ(told.ends[0].finish(), FinishReason::kLength);
  EXPECT_EQ(told.ends[0].told.service_class, 0);
  EXPECT_EQ(told.ends[0].told.tenant, 0);
  EXPECT_EQ(told.ends[1].refusal(), RefusalReason::kUnknownClass);
  EXPECT_EQ(told.ends[1].told.service_class, kNoClass);
  EXPECT_EQ(told.ends[1].told.tenant, 0) << "the tenant is known, though the class is not";
}

TEST_F(ServerTest, WhatIsRefusedIsToldAsOfTheClassThatItNamedInWhicheverWay) {
  ChangePolicy([](Policy* policy) {
    policy->classes.push_back(policy->classes[0]);
    policy->classes[1].name = "second";
    policy->classes[1].kv_guarantee_blocks = policy->classes[1].slot_guarantee = 0;
    policy->classes[1].objectives = {"bulk"};
  });
  const auto class_told = [this](const char* key, const char* value, v1::GenerateRequest request) {
    request.mutable_stopping()->set_max_output_tokens(-1);
    grpc::ClientContext context;
    if (*key != '\0') context.AddMetadata(key, value);
    EXPECT_EQ(Generate(request, nullptr, &context).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    return metrics_.told().ends.back().told.service_class;
  };
  EXPECT_EQ(class_told("", "", Request("Hello")), 0);
  EXPECT_EQ(class_told("x-berth-class", "second", Request("Hello")), 1);
  EXPECT_EQ(class_told("x-gateway-inference-objective", "bulk", Request("Hello")), 1);
  EXPECT_EQ(class_told("x-berth-class", "unheard of", Request("Hello")), kNoClass);
  v1::GenerateRequest first = Request("Hello");
  first.set_service_class("only");
  EXPECT_EQ(class_told("x-berth-class", "second", first), 0);
}

TEST_F(ServerTest, AClientThatHangsUpIsToldOnce) {
  backend_.CloseGate();
  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, Request("Hello", 15'000));
  backend_.WaitForStepAtGate();
  context.TryCancel();
  v1::GenerateStreamResponse message;
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  // Not so fast that it is through before the server has heard of it.
  while (metrics_.told().rpc_ends.empty()) {
    backend_.LetOneStepGo();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  backend_.OpenGate();
  const auto told = metrics_.told();
  ASSERT_EQ(told.ends.size(), 1U);
  EXPECT_EQ(told.ends[0].refusal(), RefusalReason::kCancelledByClient);
  EXPECT_TRUE(told.ends[0].told.started);
  EXPECT_EQ(told.rpc_ends[0].second, static_cast<int>(grpc::StatusCode::CANCELLED));
}

TEST(RpcMethods, AreThoseOfEveryService) {
  const std::vector<std::string> names = RpcMethodNames();
  for (const char* name : {"berth.v1.Inference/Generate", "berth.v1.Admin/GetStatus"}) {
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  }
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(RpcMethodOf(names[i]), static_cast<RpcMethod>(i));
}

}  // namespace
}  // namespace berth
