#include "frontend/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "fakes/fake_tokenizer.h"

namespace berth {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

const RequestLimits kCodecLimits{.max_stop_strings = 3,
                                 .max_stop_string_bytes = 8,
                                 .max_logit_bias = 2,
                                 .max_logprobs = 20,
                                 .max_request_id_bytes = 128};
constexpr std::int32_t kContextTokens = 64;
const TimePoint kArrival = TimePoint(std::chrono::hours(5));

class CodecTest : public testing::Test {
 protected:
  CodecTest() {
    context_.caller.tenant = 1;
    context_.caller.tenant_name = "default";
  }
  static v1::GenerateRequest Minimal() {
    v1::GenerateRequest request;
    request.set_text("Hello");
    return request;
  }

  std::variant<GenerateSpec, Refusal> Decode(v1::GenerateRequest request, TimePoint call_deadline = kNoDeadline) {
    std::string id = codec_.ResolveRequestId(request);
    context_.arrival = kArrival;
    context_.deadline = call_deadline;
    context_.policy = std::make_shared<const Policy>(policy_);
    return codec_.Decode(std::move(request), std::move(id), context_);
  }
  GenerateSpec Accept(const v1::GenerateRequest& request, TimePoint call_deadline = kNoDeadline) {
    auto decoded = Decode(request, call_deadline);
    if (const auto* refusal = std::get_if<Refusal>(&decoded)) {
      ADD_FAILURE() << refusal->message;
      return {};
    }
    return std::get<GenerateSpec>(std::move(decoded));
  }
  // Takes the minimal request, changed.
  GenerateSpec AcceptWith(const std::function<void(v1::GenerateRequest*)>& change) {
    v1::GenerateRequest request = Minimal();
    change(&request);
    return Accept(request);
  }
  Refusal RefuseWith(const std::function<void(v1::GenerateRequest*)>& change) {
    v1::GenerateRequest request = Minimal();
    change(&request);
    auto decoded = Decode(request);
    if (!std::holds_alternative<Refusal>(decoded)) {
      ADD_FAILURE() << "accepted: " << request.ShortDebugString();
      return {};
    }
    return std::get<Refusal>(std::move(decoded));
  }
  void ExpectInvalid(const std::string& field, const std::function<void(v1::GenerateRequest*)>& change) {
    const Refusal refusal = RefuseWith(change);
    EXPECT_EQ(refusal.reason, RefusalReason::kInvalidRequest) << field;
    EXPECT_EQ(refusal.field, field);
    EXPECT_THAT(refusal.message, StartsWith(field));
    EXPECT_EQ(refusal.message.find('\n'), std::string::npos);
    EXPECT_FALSE(refusal.retry_after.has_value());
  }

  static Policy Classes() {
    Policy policy;
    for (const char* name : {"gone", "batch", "normal"}) policy.classes.emplace_back().name = name;
    policy.classes[0].removed = true;
    policy.classes[1].default_output_tokens = 32;
    policy.classes[2].default_output_tokens = 256;
    policy.default_class = 2;
    for (const char* name : {"bert", "default"}) policy.tenants.emplace_back().name = name;
    policy.default_tenant = 1;
    return policy;
  }

  Policy policy_ = Classes();
  CallContext context_;
  test::FakeTokenizer tokenizer_{{"twelve bytes"}};
  Codec codec_{kCodecLimits, "tiny", kContextTokens, &tokenizer_};
};

TEST_F(CodecTest, EveryDefaultIsTheDocumentedOne) {
  const GenerateSpec spec = Accept(Minimal());
  EXPECT_EQ(spec.prompt_text, "Hello");
  EXPECT_FALSE(spec.prompt_is_ids);
  EXPECT_FALSE(spec.parse_special_tokens);
  EXPECT_EQ(spec.arrival, kArrival);
  EXPECT_EQ(spec.deadline, kNoDeadline);
  EXPECT_EQ(spec.sampling.temperature, 1.0F);
  EXPECT_EQ(spec.sampling.top_k, 0);
  EXPECT_EQ(spec.sampling.top_p, 1.0F);
  EXPECT_EQ(spec.sampling.min_p, 0.0F);
  EXPECT_EQ(spec.sampling.n, 1);
  EXPECT_EQ(spec.sampling.repetition_penalty, 1.0F);
  EXPECT_EQ(spec.sampling.presence_penalty, 0.0F);
  EXPECT_EQ(spec.sampling.frequency_penalty, 0.0F);
  EXPECT_TRUE(spec.sampling.logit_bias.empty());
  EXPECT_EQ(spec.stopping.max_output_tokens, 256);
  EXPECT_TRUE(spec.stopping.max_output_tokens_is_default);
  EXPECT_EQ(spec.stopping.min_output_tokens, 0);
  EXPECT_TRUE(spec.stopping.stop_strings.empty());
  EXPECT_TRUE(spec.stopping.stop_token_ids.empty());
  EXPECT_FALSE(spec.stopping.include_stop_text);
  EXPECT_FALSE(spec.stopping.ignore_eos);
  EXPECT_EQ(spec.output.logprobs, kNoLogprobs);
  EXPECT_EQ(spec.output.prompt_logprobs, kNoLogprobs);
  EXPECT_FALSE(spec.output.return_token_ids);
  EXPECT_FALSE(spec.output.echo_prompt);
}

TEST_F(CodecTest, AnOmittedSeedIsDrawnAnewAndAZeroIsKept) {
  EXPECT_NE(Accept(Minimal()).sampling.seed, Accept(Minimal()).sampling.seed);
  EXPECT_EQ(AcceptWith([](auto* r) { r->mutable_sampling()->set_seed(0); }).sampling.seed, 0U);
}

TEST_F(CodecTest, EveryFieldArrivesInTheSpec) {
  const GenerateSpec spec = AcceptWith([](v1::GenerateRequest* r) {
    r->set_request_id("id 7~");
    r->set_model("tiny");
    r->set_parse_special_tokens(true);
    r->set_service_class("batch");
    v1::Sampling& sampling = *r->mutable_sampling();
    sampling.set_temperature(0.0F);
    sampling.set_top_k(40);
    sampling.set_top_p(0.5F);
    sampling.set_min_p(0.25F);
    sampling.set_seed(std::numeric_limits<std::uint64_t>::max());
    sampling.set_n(7);
    sampling.set_repetition_penalty(1.5F);
    sampling.set_presence_penalty(-2.0F);
    sampling.set_frequency_penalty(2.0F);
    (*sampling.mutable_logit_bias())[9] = -100.0F;
    (*sampling.mutable_logit_bias())[3] = 100.0F;
    v1::Stopping& stopping = *r->mutable_stopping();
    stopping.set_max_output_tokens(10);
    stopping.set_min_output_tokens(10);
    stopping.add_stop_strings("\n");
    stopping.add_stop_strings("éé");
    stopping.add_stop_token_ids(0);
    stopping.set_include_stop_text(true);
    stopping.set_ignore_eos(true);
    v1::Output& output = *r->mutable_output();
    output.set_logprobs(0);
    output.set_prompt_logprobs(20);
    output.set_return_token_ids(true);
    output.set_echo_prompt(true);
  });
  EXPECT_EQ(spec.request_id, "id 7~");
  EXPECT_TRUE(spec.parse_special_tokens);
  EXPECT_EQ(spec.service_class, 1);
  EXPECT_EQ(spec.tenant, 1);
  EXPECT_EQ(spec.sampling.n, 7);
  EXPECT_EQ(spec.sampling.temperature, 0.0F);
  EXPECT_EQ(spec.sampling.top_k, 40);
  EXPECT_EQ(spec.sampling.top_p, 0.5F);
  EXPECT_EQ(spec.sampling.min_p, 0.25F);
  EXPECT_EQ(spec.sampling.seed, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(spec.sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(spec.sampling.presence_penalty, -2.0F);
  EXPECT_EQ(spec.sampling.frequency_penalty, 2.0F);
  EXPECT_THAT(spec.sampling.logit_bias, ElementsAre(Pair(3, 100.0F), Pair(9, -100.0F)));
  EXPECT_EQ(spec.stopping.max_output_tokens, 10);
  EXPECT_FALSE(spec.stopping.max_output_tokens_is_default);
  EXPECT_EQ(spec.stopping.min_output_tokens, 10);
  EXPECT_THAT(spec.stopping.stop_strings, ElementsAre("\n", "éé"));
  EXPECT_THAT(spec.stopping.stop_token_ids, ElementsAre(0));
  EXPECT_TRUE(spec.stopping.include_stop_text);
  EXPECT_TRUE(spec.stopping.ignore_eos);
  EXPECT_EQ(spec.output.logprobs, 0);
  EXPECT_EQ(spec.output.prompt_logprobs, 20);
  EXPECT_TRUE(spec.output.return_token_ids);
  EXPECT_TRUE(spec.output.echo_prompt);
}

TEST_F(CodecTest, TokenIdsAreTakenAsTheyAre) {
  const GenerateSpec spec = AcceptWith([](auto* r) {
    r->mutable_token_ids()->add_ids(5);
    r->mutable_token_ids()->add_ids(test::FakeTokenizer::kFirstPiece);
  });
  EXPECT_TRUE(spec.prompt_is_ids);
  EXPECT_THAT(spec.prompt_ids, ElementsAre(5, test::FakeTokenizer::kFirstPiece));
}

TEST_F(CodecTest, AMissingOrEmptyPromptIsRefused) {
  ExpectInvalid("prompt", [](auto* r) { r->clear_prompt(); });
  ExpectInvalid("text", [](auto* r) { r->set_text(""); });
  ExpectInvalid("token_ids.ids", [](auto* r) { r->mutable_token_ids(); });
}

TEST_F(CodecTest, PromptIdsOutsideTheVocabularyAreRefused) {
  ExpectInvalid("token_ids.ids", [](auto* r) { r->mutable_token_ids()->add_ids(-1); });
  ExpectInvalid("token_ids.ids", [this](auto* r) { r->mutable_token_ids()->add_ids(tokenizer_.vocab_size()); });
}

TEST_F(CodecTest, RequestIdsAreBoundedPrintableAscii) {
  const std::string longest(128, 'x');
  EXPECT_EQ(AcceptWith([&](auto* r) { r->set_request_id(longest); }).request_id, longest);
  ExpectInvalid("request_id", [&](auto* r) { r->set_request_id(longest + "x"); });
  ExpectInvalid("request_id", [](auto* r) { r->set_request_id("tab\there"); });
  ExpectInvalid("request_id", [](auto* r) { r->set_request_id("é"); });
  ExpectInvalid("request_id", [](auto* r) { r->set_request_id("\x7f"); });
}

TEST_F(CodecTest, AMissingRequestIdIsMadeAndIsNeverTheSameTwice) {
  const GenerateSpec one = Accept(Minimal());
  EXPECT_THAT(one.request_id, StartsWith("berth-"));
  EXPECT_EQ(one.request_id.size(), 38U);
  EXPECT_NE(one.request_id, Accept(Minimal()).request_id);
}

TEST_F(CodecTest, ABadRequestIdStillGetsAnIdToBeSpokenOf) {
  v1::GenerateRequest request = Minimal();
  request.set_request_id("\x01");
  EXPECT_THAT(codec_.ResolveRequestId(request), StartsWith("berth-"));
}

TEST_F(CodecTest, TheEarlierOfTimeoutAndCallDeadlineCounts) {
  v1::GenerateRequest request = Minimal();
  const TimePoint call_deadline = kArrival + std::chrono::seconds(10);
  EXPECT_EQ(Accept(request, call_deadline).deadline, call_deadline);
  EXPECT_FALSE(Accept(request, call_deadline).partial_at_deadline) << "the caller has hung up by then";
  request.mutable_timeout()->set_seconds(3);
  request.mutable_timeout()->set_nanos(500'000'000);
  EXPECT_EQ(Accept(request).deadline, kArrival + std::chrono::milliseconds(3500));
  EXPECT_EQ(Accept(request, call_deadline).deadline, kArrival + std::chrono::milliseconds(3500));
  EXPECT_TRUE(Accept(request, call_deadline).partial_at_deadline);
  request.mutable_timeout()->set_seconds(11);
  EXPECT_FALSE(Accept(request, call_deadline).partial_at_deadline);
  EXPECT_EQ(Accept(request, call_deadline).deadline, call_deadline);
  request.mutable_timeout()->set_seconds(std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(Accept(request).deadline, kNoDeadline);
  EXPECT_EQ(Accept(request, call_deadline).deadline, call_deadline);
}

TEST_F(CodecTest, TimeoutsThatAreNoTimeAreRefused) {
  const auto timeout = [](std::int64_t seconds, std::int32_t nanos) {
    return [=](v1::GenerateRequest* r) {
      r->mutable_timeout()->set_seconds(seconds);
      r->mutable_timeout()->set_nanos(nanos);
    };
  };
  ExpectInvalid("timeout", timeout(0, 0));
  ExpectInvalid("timeout", timeout(-1, 0));
  ExpectInvalid("timeout", timeout(1, -1));
  ExpectInvalid("timeout", timeout(1, 1'000'000'000));
}

// Name, setter, values at the edge that pass and values beyond it.
struct FloatBound {
  const char* field;
  void (*set)(v1::Sampling*, float);
  std::vector<float> good;
  std::vector<float> bad;
};

TEST_F(CodecTest, SamplingNumbersAreBoundedAndFinite) {
  const float above_one = std::nextafter(1.0F, 2.0F);
  const std::vector<FloatBound> bounds = {
      {"sampling.temperature", [](auto* s, float v) { s->set_temperature(v); }, {0.0F, 1e-3F, 100.0F}, {-0.1F, 100.5F}},
      {"sampling.top_p", [](auto* s, float v) { s->set_top_p(v); }, {1e-6F, 1.0F}, {0.0F, -1.0F, above_one}},
      {"sampling.min_p", [](auto* s, float v) { s->set_min_p(v); }, {0.0F, 1.0F}, {-0.1F, above_one}},
      {"sampling.repetition_penalty",
       [](auto* s, float v) { s->set_repetition_penalty(v); },
       {0.1F, 10.0F},
       {0.0F, -1.0F, 10.5F}},
      {"sampling.presence_penalty", [](auto* s, float v) { s->set_presence_penalty(v); }, {-2.0F, 2.0F}, {-2.1F, 2.1F}},
      {"sampling.frequency_penalty",
       [](auto* s, float v) { s->set_frequency_penalty(v); },
       {-2.0F, 2.0F},
       {-2.1F, 2.1F}},
      {"sampling.logit_bias",
       [](auto* s, float v) { (*s->mutable_logit_bias())[1] = v; },
       {-100.0F, 100.0F},
       {-100.5F, 101.0F}},
  };
  for (const FloatBound& bound : bounds) {
    for (const float value : bound.good) AcceptWith([&](auto* r) { bound.set(r->mutable_sampling(), value); });
    std::vector<float> bad = bound.bad;
    const float infinity = std::numeric_limits<float>::infinity();
    bad.insert(bad.end(), {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()});
    for (const float value : bad) {
      SCOPED_TRACE(value);
      ExpectInvalid(bound.field, [&](auto* r) { bound.set(r->mutable_sampling(), value); });
    }
  }
}

TEST_F(CodecTest, TopKIsAnyCountAndNeverNegative) {
  AcceptWith([](auto* r) { r->mutable_sampling()->set_top_k(std::numeric_limits<std::int32_t>::max()); });
  ExpectInvalid("sampling.top_k", [](auto* r) { r->mutable_sampling()->set_top_k(-1); });
}

TEST_F(CodecTest, LogitBiasIsBoundedInCountAndIds) {
  ExpectInvalid("sampling.logit_bias", [](auto* r) {
    for (int id = 0; id < 3; ++id) (*r->mutable_sampling()->mutable_logit_bias())[id] = 1.0F;
  });
  ExpectInvalid("sampling.logit_bias", [](auto* r) { (*r->mutable_sampling()->mutable_logit_bias())[-1] = 1.0F; });
  ExpectInvalid("sampling.logit_bias",
                [this](auto* r) { (*r->mutable_sampling()->mutable_logit_bias())[tokenizer_.vocab_size()] = 1.0F; });
}

TEST_F(CodecTest, OutputTokenCountsAreBounded) {
  ExpectInvalid("stopping.max_output_tokens", [](auto* r) { r->mutable_stopping()->set_max_output_tokens(0); });
  ExpectInvalid("stopping.max_output_tokens", [](auto* r) { r->mutable_stopping()->set_max_output_tokens(-5); });
  ExpectInvalid("stopping.min_output_tokens", [](auto* r) { r->mutable_stopping()->set_min_output_tokens(-1); });
  ExpectInvalid("stopping.min_output_tokens", [](auto* r) {
    r->mutable_stopping()->set_max_output_tokens(5);
    r->mutable_stopping()->set_min_output_tokens(6);
  });
  EXPECT_THAT(RefuseWith([](auto* r) { r->mutable_stopping()->set_min_output_tokens(257); }).message,
              HasSubstr("256 by default"));
}

TEST_F(CodecTest, StopStringsAreBoundedAndNeverEmpty) {
  const auto with = [](const std::vector<std::string>& stops) {
    return [stops](v1::GenerateRequest* r) {
      for (const std::string& stop : stops) r->mutable_stopping()->add_stop_strings(stop);
    };
  };
  AcceptWith(with({"12345678", "b", "c"}));
  ExpectInvalid("stopping.stop_strings", with({"a", "b", "c", "d"}));
  ExpectInvalid("stopping.stop_strings", with({"123456789"}));
  ExpectInvalid("stopping.stop_strings", with({"a", ""}));
}

TEST_F(CodecTest, StopTokenIdsAreBoundedAndInTheVocabulary) {
  const auto with = [](int count, std::int32_t id) {
    return [=](v1::GenerateRequest* r) {
      for (int i = 0; i < count; ++i) r->mutable_stopping()->add_stop_token_ids(id);
    };
  };
  AcceptWith(with(kMaxStopTokenIds, tokenizer_.vocab_size() - 1));
  ExpectInvalid("stopping.stop_token_ids", with(kMaxStopTokenIds + 1, 1));
  ExpectInvalid("stopping.stop_token_ids", with(1, -1));
  ExpectInvalid("stopping.stop_token_ids", with(1, tokenizer_.vocab_size()));
}

TEST_F(CodecTest, LogprobCountsAreBounded) {
  ExpectInvalid("output.logprobs", [](auto* r) { r->mutable_output()->set_logprobs(-1); });
  ExpectInvalid("output.logprobs", [](auto* r) { r->mutable_output()->set_logprobs(21); });
  ExpectInvalid("output.prompt_logprobs", [](auto* r) { r->mutable_output()->set_prompt_logprobs(-1); });
  ExpectInvalid("output.prompt_logprobs", [](auto* r) { r->mutable_output()->set_prompt_logprobs(21); });
}

TEST_F(CodecTest, MoreChoicesThanMayRunAreRefusedWithTheLimit) {
  policy_.max_running_sequences = 3;
  AcceptWith([](auto* r) { r->mutable_sampling()->set_n(3); });
  const Refusal refusal = RefuseWith([](auto* r) { r->mutable_sampling()->set_n(4); });
  EXPECT_EQ(refusal.reason, RefusalReason::kInvalidRequest);
  EXPECT_EQ(refusal.field, "sampling.n");
  EXPECT_EQ(refusal.limit_name, "max_running_sequences");
  EXPECT_EQ(refusal.limit, 3);
  EXPECT_EQ(refusal.asked, 4);
}

TEST_F(CodecTest, TheClassIsTheFieldsThenTheHeadersThenTheObjectivesThenTheDefault) {
  policy_.classes[0].objectives = {"was-here"};
  policy_.classes[1].objectives = {"cheap", "bulk"};
  struct Case {
    const char* field;
    const char* header;
    const char* objective;
    ClassId expected;
  };
  for (const Case& c : {
           Case{"", "", "", 2},
           Case{"batch", "", "", 1},
           Case{"normal", "batch", "cheap", 2},
           Case{"", "batch", "", 1},
           Case{"", "normal", "cheap", 2},
           Case{"", "", "bulk", 1},
           Case{"", "", "unheard-of", 2},
           Case{"", "", "batch", 2},
           Case{"", "", "was-here", 2},
       }) {
    context_.headers.service_class = c.header;
    context_.headers.objective = c.objective;
    EXPECT_EQ(AcceptWith([&](auto* r) { r->set_service_class(c.field); }).service_class, c.expected)
        << c.field << "/" << c.header << "/" << c.objective;
  }
  context_.headers.service_class = "gold";
  const Refusal refusal = RefuseWith([](auto*) {});
  EXPECT_EQ(refusal.reason, RefusalReason::kUnknownClass);
  EXPECT_EQ(refusal.field, "x-berth-class");
  EXPECT_THAT(refusal.message, StartsWith("x-berth-class 'gold' is not known here"));
}

TEST_F(CodecTest, AClassThatTheTenantMayNotUseIsRefusedHoweverItCameToBeMeant) {
  policy_.tenants[1].classes = {1};
  context_.caller.tenant_name = "acme";
  EXPECT_EQ(AcceptWith([](auto* r) { r->set_service_class("batch"); }).service_class, 1);
  for (const char* const name : {"", "normal"}) {
    const Refusal refusal = RefuseWith([&](auto* r) { r->set_service_class(name); });
    EXPECT_EQ(refusal.reason, RefusalReason::kClassNotAllowed);
    EXPECT_EQ(refusal.service_class, "normal");
    EXPECT_THAT(refusal.message, HasSubstr("tenant 'acme' may not use class 'normal'"));
  }
}

TEST_F(CodecTest, WhatIsMalformedIsToldBeforeTheModelAndThatBeforeTheClass) {
  v1::GenerateRequest request = Minimal();
  request.set_service_class("unheard-of");
  request.set_model("unheard-of");
  request.mutable_sampling()->set_n(1'000'000);
  EXPECT_EQ(std::get<Refusal>(Decode(request)).reason, RefusalReason::kInvalidRequest);
  request.clear_sampling();
  EXPECT_EQ(std::get<Refusal>(Decode(request)).reason, RefusalReason::kModelNotFound);
  request.clear_model();
  EXPECT_EQ(std::get<Refusal>(Decode(request)).reason, RefusalReason::kUnknownClass);
}

TEST_F(CodecTest, TheCallersTenantAndTraceArriveInTheSpec) {
  context_.caller.tenant = 0;
  context_.headers.trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
  const GenerateSpec spec = Accept(Minimal());
  EXPECT_EQ(spec.tenant, 0);
  EXPECT_EQ(spec.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
}

TEST_F(CodecTest, AnUnnamedClassIsTheDefaultAndAnUnknownOneIsRefusedWithThoseThereAre) {
  EXPECT_EQ(Accept(Minimal()).service_class, 2);
  for (const std::string name : {"other", "gone", "Batch"}) {
    const Refusal refusal = RefuseWith([&](auto* r) { r->set_service_class(name); });
    EXPECT_EQ(refusal.reason, RefusalReason::kUnknownClass);
    EXPECT_EQ(refusal.field, "service_class");
    EXPECT_THAT(refusal.message, HasSubstr("'" + name + "'"));
    EXPECT_THAT(refusal.message, EndsWith("one of batch, normal"));
  }
  const Refusal refusal = RefuseWith([](auto* r) { r->set_service_class(std::string(3000, 'x')); });
  EXPECT_LT(refusal.message.size(), 300U) << "a caller's text is repeated in bounds";
}

TEST_F(CodecTest, WhatARequestLeavesOpenIsAsItsClassSays) {
  const auto batch = [](v1::GenerateRequest* r) { r->set_service_class("batch"); };
  EXPECT_EQ(AcceptWith(batch).stopping.max_output_tokens, 32);
  EXPECT_EQ(AcceptWith(batch).deadline, kNoDeadline);
  EXPECT_THAT(RefuseWith([&](auto* r) {
                batch(r);
                r->mutable_stopping()->set_min_output_tokens(33);
              }).message,
              HasSubstr("(32 by default)"));

  policy_.classes[1].default_timeout = std::chrono::seconds(10);
  EXPECT_EQ(Accept(Minimal()).deadline, kNoDeadline) << "of another class";
  v1::GenerateRequest request = Minimal();
  batch(&request);
  const GenerateSpec spec = Accept(request);
  EXPECT_EQ(spec.deadline, kArrival + std::chrono::seconds(10));
  EXPECT_TRUE(spec.partial_at_deadline);
  // The earliest of all three counts.
  const TimePoint sooner = kArrival + std::chrono::seconds(5);
  EXPECT_EQ(Accept(request, sooner).deadline, sooner);
  EXPECT_FALSE(Accept(request, sooner).partial_at_deadline);
  request.mutable_timeout()->set_seconds(3);
  EXPECT_EQ(Accept(request, sooner).deadline, kArrival + std::chrono::seconds(3));
}

TEST_F(CodecTest, FewerThanOneChoiceIsMalformed) {
  ExpectInvalid("sampling.n", [](auto* r) { r->mutable_sampling()->set_n(0); });
  ExpectInvalid("sampling.n", [](auto* r) { r->mutable_sampling()->set_n(-3); });
}

TEST_F(CodecTest, OnlyTheServedModelIsFound) {
  AcceptWith([](auto* r) { r->set_model("tiny"); });
  const Refusal refusal = RefuseWith([](auto* r) { r->set_model("Tiny"); });
  EXPECT_EQ(refusal.reason, RefusalReason::kModelNotFound);
  EXPECT_THAT(refusal.message, HasSubstr("'tiny'"));
}

TEST_F(CodecTest, ALongModelNameIsRepeatedInWholeCharacters) {
  std::string name = "x";
  while (name.size() < 300) name += "\u00e9";
  const Refusal refusal = RefuseWith([&](auto* r) { r->set_model(name); });
  EXPECT_THAT(refusal.message, HasSubstr("'" + name.substr(0, 127) + "'"));
}

TEST_F(CodecTest, ATextThatCannotFitIsRefusedWithoutTokenizing) {
  const auto bytes_limit = std::size_t{kContextTokens} * static_cast<std::size_t>(tokenizer_.longest_piece_bytes());
  GenerateSpec spec = AcceptWith([&](auto* r) { r->set_text(std::string(bytes_limit, 'x')); });
  EXPECT_FALSE(codec_.CheckPromptBytes(spec).has_value());
  spec.prompt_text += 'x';
  const std::optional<Refusal> refusal = codec_.CheckPromptBytes(spec);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->reason, RefusalReason::kRequestTooLarge);
  EXPECT_EQ(refusal->limit_name, "prompt_bytes");
  EXPECT_EQ(refusal->limit, static_cast<std::int64_t>(bytes_limit));
  EXPECT_EQ(refusal->asked, static_cast<std::int64_t>(bytes_limit) + 1);
}

}  // namespace
}  // namespace berth
