// The calls that only ask.
#include <gmock/gmock.h>

#include <string>
#include <utility>

#include "server_fixture.h"

namespace berth {
namespace {

using ::testing::ElementsAre;

std::pair<grpc::Status, v1::EstimateDemandResponse> Estimate(v1::Inference::Stub* stub,
                                                             const v1::GenerateRequest& request) {
  v1::EstimateDemandRequest wrapped;
  *wrapped.mutable_request() = request;
  v1::EstimateDemandResponse response;
  grpc::ClientContext context;
  grpc::Status status = stub->EstimateDemand(&context, wrapped, &response);
  return {std::move(status), std::move(response)};
}

TEST_F(ServerTest, DemandIsEstimatedAsGenerateWouldReserveIt) {
  const auto [status, response] = Estimate(stub_.get(), Request(std::string(20, 'x'), 30));
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(response.fits());
  EXPECT_FALSE(response.has_refusal());
  EXPECT_EQ(response.prompt_tokens(), 20);
  EXPECT_EQ(response.max_output_tokens(), 30);
  EXPECT_EQ(response.worst_blocks(), 4);  // ⌈49 / 16⌉
  EXPECT_EQ(response.block_tokens(), 16);
  EXPECT_EQ(response.pool_blocks(), 1000);
  EXPECT_EQ(response.kv_bytes(), 4 * 16 * 2 * 2 * 2 * 8 * 2);
  v1::GenerateResponse generated;
  ASSERT_TRUE(Generate(Request(std::string(20, 'x'), 30), &generated).ok());
  EXPECT_EQ(generated.usage().reserved_blocks(), 4);

  const auto [large_status, large] = Estimate(stub_.get(), Request("x", 20'000));
  ASSERT_TRUE(large_status.ok());
  EXPECT_FALSE(large.fits());
  EXPECT_EQ(large.refusal().reason(), "REQUEST_TOO_LARGE");
  EXPECT_EQ(large.refusal().limit_name(), "kv_blocks");
  EXPECT_EQ(large.refusal().limit(), 1000);
  EXPECT_EQ(large.refusal().asked(), 1250);

  EXPECT_EQ(Estimate(stub_.get(), {}).first.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServerTest, DemandOfAClassThatIsStoppedFitsAndIsRefusedForNow) {
  for (const ClassStop stop : {ClassStop::kHold, ClassStop::kDrain}) {
    ChangePolicy([stop](Policy* policy) { policy->classes[0].stop = stop; });
    const auto [status, response] = Estimate(stub_.get(), Request(std::string(20, 'x'), 30));
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_TRUE(response.fits());
    EXPECT_EQ(response.worst_blocks(), 4);
    EXPECT_EQ(response.outlook(), v1::OUTLOOK_REFUSED);
    EXPECT_EQ(response.refusal().reason(), "CLASS_ON_HOLD");
    EXPECT_EQ(ReasonOf(Generate(Request("Hello"))), "CLASS_ON_HOLD");
    const auto [large_status, large] = Estimate(stub_.get(), Request("x", 20'000));
    ASSERT_TRUE(large_status.ok());
    EXPECT_FALSE(large.fits());
    EXPECT_EQ(large.refusal().reason(), "REQUEST_TOO_LARGE") << "which is so when the class goes on, too";
  }
}

TEST_F(ServerTest, TextGoesToIdsAndBack) {
  v1::TokenizeRequest request;
  request.set_text("hé");
  request.set_return_pieces(true);
  v1::TokenizeResponse ids;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub_->Tokenize(&context, request, &ids).ok());
  }
  EXPECT_THAT(ids.token_ids(), ElementsAre('h', 0xC3, 0xA9));
  EXPECT_THAT(ids.pieces(), ElementsAre("h", "\xC3", "\xA9"));
  v1::DetokenizeRequest back;
  *back.mutable_token_ids() = ids.token_ids();
  v1::DetokenizeResponse text;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub_->Detokenize(&context, back, &text).ok());
  }
  EXPECT_EQ(text.text(), "hé");
  back.add_token_ids(-1);
  grpc::ClientContext context;
  EXPECT_EQ(stub_->Detokenize(&context, back, &text).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServerTest, LookupsKnowOnlyTheServedModel) {
  v1::TokenizeRequest tokenize;
  v1::TokenizeResponse tokenized;
  v1::DetokenizeRequest detokenize;
  v1::DetokenizeResponse detokenized;
  v1::GetModelInfoRequest info;
  v1::GetModelInfoResponse informed;
  tokenize.set_model("other");
  detokenize.set_model("other");
  info.set_model("other");
  grpc::ClientContext contexts[3];
  EXPECT_EQ(ReasonOf(stub_->Tokenize(&contexts[0], tokenize, &tokenized)), "MODEL_NOT_FOUND");
  EXPECT_EQ(ReasonOf(stub_->Detokenize(&contexts[1], detokenize, &detokenized)), "MODEL_NOT_FOUND");
  EXPECT_EQ(ReasonOf(stub_->GetModelInfo(&contexts[2], info, &informed)), "MODEL_NOT_FOUND");
}

TEST_F(ServerTest, ModelInfoTellsTheModelAndItsCache) {
  grpc::ClientContext context;
  v1::GetModelInfoResponse info;
  ASSERT_TRUE(stub_->GetModelInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.name(), "tiny");
  EXPECT_EQ(info.architecture(), "llama");
  EXPECT_EQ(info.model_title(), "Tiny");
  EXPECT_EQ(info.vocab_size(), tokenizer_.vocab_size());
  EXPECT_EQ(info.max_context_tokens(), kContextTokens);
  EXPECT_EQ(info.trained_context_tokens(), 200'000);
  EXPECT_EQ(info.layers(), 2);
  EXPECT_EQ(info.hidden_size(), 32);
  EXPECT_EQ(info.heads(), 4);
  EXPECT_EQ(info.kv_heads(), 2);
  EXPECT_EQ(info.head_dim(), 8);
  EXPECT_EQ(info.block_tokens(), 16);
  EXPECT_EQ(info.pool_blocks(), 1000);
  EXPECT_EQ(info.kv_bytes_per_token(), 2 * 2 * 2 * 8 * 2);
  EXPECT_EQ(info.kv_dtype(), "bf16");
  EXPECT_EQ(info.bos_token_id(), test::FakeTokenizer::kBos);
  EXPECT_THAT(info.eos_token_ids(), ElementsAre(test::FakeTokenizer::kEos, test::FakeTokenizer::kEndOfTurn));
  EXPECT_EQ(info.tokenizer(), "fake bytes");
  EXPECT_EQ(info.default_output_tokens(), 8);
  EXPECT_FALSE(info.server_version().empty());
}

}  // namespace
}  // namespace berth
