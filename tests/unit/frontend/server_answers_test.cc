// What the server answers.
#include <gmock/gmock.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "server_fixture.h"

namespace berth {
namespace {

using ::testing::StartsWith;

TEST_F(ServerTest, AUnaryCallGetsTextUsageAndTheUsageTrailer) {
  grpc::ClientContext context;
  v1::GenerateResponse response;
  v1::GenerateRequest request = Request("Hello");
  request.set_request_id("mine");
  request.mutable_output()->set_return_token_ids(true);
  request.mutable_output()->set_logprobs(2);
  const grpc::Status status = Generate(request, &response, &context);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.request_id(), "mine");
  ASSERT_EQ(response.choices_size(), 1);
  EXPECT_EQ(response.choices(0).text().size(), 8U);
  EXPECT_EQ(response.choices(0).token_ids_size(), 8);
  ASSERT_EQ(response.choices(0).logprobs_size(), 8);
  EXPECT_EQ(response.choices(0).logprobs(0).top_size(), 2);
  EXPECT_EQ(response.choices(0).logprobs(0).piece(), response.choices(0).text().substr(0, 1));
  EXPECT_EQ(response.choices(0).finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(response.usage().prompt_tokens(), 5);
  EXPECT_EQ(response.usage().output_tokens(), 8);
  EXPECT_EQ(response.usage().reserved_blocks(), 1);
  v1::Usage trailer;
  ASSERT_TRUE(trailer.ParseFromString(Trailer(context, "berth-usage-bin").value_or("absent")));
  EXPECT_EQ(trailer.SerializeAsString(), response.usage().SerializeAsString());
}

TEST_F(ServerTest, AStreamSaysTheSameAsTheUnaryCall) {
  v1::GenerateResponse unary;
  ASSERT_TRUE(Generate(Request("Hello", 100), &unary).ok());
  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, Request("Hello", 100));
  std::vector<v1::GenerateStreamResponse> messages;
  for (v1::GenerateStreamResponse message; reader->Read(&message);) messages.push_back(message);
  ASSERT_TRUE(reader->Finish().ok());
  ASSERT_GE(messages.size(), 4U);
  EXPECT_EQ(messages.front().admitted().max_output_tokens(), 100);
  EXPECT_THAT(messages.front().admitted().request_id(), StartsWith("berth-"));
  EXPECT_EQ(messages[messages.size() - 2].finished().finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(messages.back().completed().usage().output_tokens(), 100);
  std::string text;
  for (const auto& message : messages) {
    for (const auto& delta : message.tokens().deltas()) text += delta.text();
  }
  EXPECT_EQ(text, unary.choices(0).text());
  EXPECT_TRUE(Trailer(context, "berth-usage-bin").has_value());
}

TEST_F(ServerTest, SeveralChoicesComeInOneAnswer) {
  v1::GenerateRequest request = Request("Hello", 6);
  request.mutable_sampling()->set_n(2);
  request.mutable_output()->set_prompt_logprobs(0);
  v1::GenerateResponse unary;
  ASSERT_TRUE(Generate(request, &unary).ok());
  ASSERT_EQ(unary.choices_size(), 2);
  for (int q = 0; q < 2; ++q) {
    EXPECT_EQ(unary.choices(q).index(), q);
    EXPECT_EQ(unary.choices(q).text().size(), 6U);
    EXPECT_EQ(unary.choices(q).finish_reason(), v1::FINISH_REASON_LENGTH);
  }
  EXPECT_EQ(unary.prompt_logprobs_size(), 4);
  EXPECT_EQ(unary.usage().output_tokens(), 12);

  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, request);
  std::map<std::int32_t, std::string> texts;
  int finished = 0;
  for (v1::GenerateStreamResponse message; reader->Read(&message);) {
    for (const auto& delta : message.tokens().deltas()) texts[delta.index()] += delta.text();
    if (message.has_finished()) ++finished;
  }
  ASSERT_TRUE(reader->Finish().ok());
  EXPECT_EQ(finished, 2);
  EXPECT_EQ(texts[0], unary.choices(0).text());
  EXPECT_EQ(texts[1], unary.choices(1).text());
}

TEST_F(ServerTest, TheClassIsToldAndAnUnknownOneIsRefused) {
  v1::GenerateRequest request = Request("Hello");
  request.set_service_class("only");
  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, request);
  v1::GenerateStreamResponse message;
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(message.admitted().service_class(), "only");
  while (reader->Read(&message)) {
  }
  ASSERT_TRUE(reader->Finish().ok());
  request.set_service_class("other");
  const grpc::Status status = Generate(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ReasonOf(status), "UNKNOWN_CLASS");
}

TEST_F(ServerTest, TheSeedInUseIsTold) {
  v1::GenerateRequest request = Request("Hello");
  request.mutable_sampling()->set_seed(1234567890123456789ULL);
  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, request);
  v1::GenerateStreamResponse message;
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(message.admitted().seed(), 1234567890123456789ULL);
  context.TryCancel();
  reader->Finish();
}

// Answers, cancels and ends in every order: what sanitizers are for.
TEST_F(ServerTest, ManyCallsThatComeAndGoLeaveNothingBehind) {
  std::vector<std::thread> clients;
  clients.reserve(4);
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([this, c] {
      for (int i = 0; i < 60; ++i) {
        grpc::ClientContext context;
        auto reader = stub_->GenerateStream(&context, Request("Hello", 1 + (i * 7 + c) % 40));
        v1::GenerateStreamResponse message;
        for (int read = 0; reader->Read(&message); ++read) {
          if (read == i % 5 && i % 3 == 0) context.TryCancel();
        }
        const grpc::Status status = reader->Finish();
        const auto code = status.error_code();
        EXPECT_TRUE(code == grpc::StatusCode::OK || code == grpc::StatusCode::CANCELLED ||
                    code == grpc::StatusCode::RESOURCE_EXHAUSTED)
            << status.error_message();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  server_.reset();
  EXPECT_EQ(engine_->load().running_requests() + engine_->load().queued_requests(), 0);
  EXPECT_EQ(engine_->load().reserved_blocks(), 0);
}

}  // namespace
}  // namespace berth
