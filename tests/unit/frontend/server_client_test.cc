// The client library against the server.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "cli/client/client.h"
#include "server_fixture.h"

namespace berth {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

GenerateClient ClientOf(const std::string& address) {
  ClientOptions options;
  options.connection.address = address;
  return GenerateClient(options);
}

TEST_F(ServerTest, TheClientLibraryHearsTheProjectsOwnEvents) {
  GenerateClient client = ClientOf(server_->address());
  GenerateSpec spec;
  spec.request_id = "from-client";
  spec.prompt_text = "Hello";
  spec.stopping.max_output_tokens_is_default = true;
  spec.stopping.stop_token_ids = {test::FakeTokenizer::kEos};
  spec.output.logprobs = 1;
  spec.output.prompt_logprobs = 0;
  spec.output.return_token_ids = true;
  std::vector<StreamEvent> events;
  const absl::Status status = client.GenerateStream(spec, [&](const StreamEvent& event) { events.push_back(event); });
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_GE(events.size(), 4U);
  EXPECT_EQ(std::get<Admitted>(events.front()).request_id, "from-client");
  EXPECT_EQ(std::get<Admitted>(events.front()).max_output_tokens, 8);
  EXPECT_EQ(std::get<TokenDelta>(events[1]).token_ids.size(), std::get<TokenDelta>(events[1]).logprobs.size());
  EXPECT_EQ(std::get<TokenDelta>(events[1]).logprobs.front().top.size(), 1U);
  EXPECT_EQ(std::get<Finished>(events[events.size() - 2]).reason, FinishReason::kLength);
  EXPECT_EQ(std::get<Completed>(events.back()).usage.output_tokens, 8);
  EXPECT_EQ(std::get<Completed>(events.back()).prompt_logprobs.size(), 4U);
}

TEST_F(ServerTest, TheClientLibraryTellsARefusalInOneLine) {
  GenerateSpec spec;
  spec.prompt_text = "Hello";
  spec.stopping.max_output_tokens = 8;
  spec.sampling.top_p = 7.0F;
  const absl::Status status = ClientOf(server_->address()).GenerateStream(spec, [](const StreamEvent&) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), StartsWith("sampling.top_p is 7"));
  EXPECT_THAT(std::string(status.message()), EndsWith("(INVALID_REQUEST)"));
}

TEST_F(ServerTest, TheClientLibraryNamesAnAddressWhereNobodyListens) {
  const std::string address = server_->address();
  server_.reset();
  const absl::Status status = ClientOf(address).GenerateStream({}, [](const StreamEvent&) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), StartsWith("nothing listens at " + address));
}

}  // namespace
}  // namespace berth
