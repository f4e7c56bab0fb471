#include "cli/request_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace berth::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

absl::StatusOr<GenerateSpec> Parse(std::string_view line, const RequestFlags& defaults = {}) {
  Json id;
  return RequestLineParser(defaults, RequestSettings()).Parse(line, &id);
}

std::string Fault(std::string_view line) { return std::string(Parse(line).status().message()); }

TEST(RequestLineTest, APromptAloneTakesTheDefaults) {
  RequestFlags defaults;
  defaults.sampling.temperature = 0.5F;
  defaults.seed = 9;
  defaults.stopping.stop_strings = {"x"};
  const GenerateSpec spec = *Parse(R"({"prompt": "a"})", defaults);
  EXPECT_EQ(spec.prompt_text, "a");
  EXPECT_FALSE(spec.prompt_is_ids);
  EXPECT_EQ(spec.sampling.temperature, 0.5F);
  EXPECT_EQ(spec.sampling.seed, 9U);
  EXPECT_THAT(spec.stopping.stop_strings, ElementsAre("x"));
  EXPECT_TRUE(spec.stopping.max_output_tokens_is_default);
}

TEST(RequestLineTest, EveryMemberIsTakenByTheNameOfTheApiAndOfTheFlag) {
  const GenerateSpec api = *Parse(
      R"({"token_ids": [1, 2], "temperature": 0.5, "top_k": 3, "top_p": 0.9, "min_p": 0.1, "seed": 18446744073709551615,
          "n": 2, "repetition_penalty": 1.5, "presence_penalty": -1, "frequency_penalty": 1, "logit_bias": {"7": -2.5},
          "max_output_tokens": 8, "min_output_tokens": 4, "stop_strings": ["x", "y"], "stop_token_ids": [5],
          "include_stop_text": true, "ignore_eos": true, "logprobs": 0, "prompt_logprobs": 1, "return_token_ids": true,
          "echo_prompt": true, "parse_special_tokens": true})");
  EXPECT_THAT(api.prompt_ids, ElementsAre(1, 2));
  EXPECT_TRUE(api.prompt_is_ids);
  EXPECT_EQ(api.sampling.seed, ~0ULL);
  EXPECT_EQ(api.sampling.n, 2);
  EXPECT_THAT(api.sampling.logit_bias, ElementsAre(Pair(7, -2.5F)));
  EXPECT_EQ(api.stopping.max_output_tokens, 8);
  EXPECT_FALSE(api.stopping.max_output_tokens_is_default);
  EXPECT_EQ(api.output.logprobs, 0);
  EXPECT_TRUE(api.output.return_token_ids);

  const GenerateSpec flags = *Parse(
      R"({"prompt": "a", "max_tokens": 8, "min_tokens": 4, "stop": "x", "stop_token_id": [5], "include_stop": true,
          "echo": true, "parse_special": true})");
  EXPECT_EQ(flags.stopping.max_output_tokens, 8);
  EXPECT_EQ(flags.stopping.min_output_tokens, 4);
  EXPECT_THAT(flags.stopping.stop_strings, ElementsAre("x"));
  EXPECT_THAT(flags.stopping.stop_token_ids, ElementsAre(5));
  EXPECT_TRUE(flags.stopping.include_stop_text && flags.output.echo_prompt && flags.parse_special_tokens);
}

TEST(RequestLineTest, NullIsLeftOut) {
  EXPECT_EQ(Parse(R"({"prompt": "a", "temperature": null, "token_ids": null, "whatever": null})")->sampling.temperature,
            0.0F);
}

TEST(RequestLineTest, ALeftOutSeedIsDrawnForEachLine) {
  EXPECT_NE(Parse(R"({"prompt": "a"})")->sampling.seed, Parse(R"({"prompt": "a"})")->sampling.seed);
}

TEST(RequestLineTest, WhatIsWrongNamesTheMember) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "a prompt is missing"},
      {R"({"prompt": "a", "token_ids": [1]})", "only one of"},
      {R"({"prompt": "a", "text": "b"})", "two names"},
      {R"({"prompt": "a", "max_tokens": 1, "max_output_tokens": 1})", "two names"},
      {R"({"prompt": 1})", "\"prompt\" must be a text"},
      {R"({"token_ids": [1, -1]})", "element 1 of \"token_ids\""},
      {R"({"prompt": "a", "temprature": 1})", "\"temprature\" is no member of a request"},
      {R"({"prompt": "a", "temperature": "1"})", "\"temperature\" must be a number from 0.0 to 100.0"},
      {R"({"prompt": "a", "temperature": -0.1})", "\"temperature\""},
      {R"({"prompt": "a", "temperature": 1e400})", "not JSON"},
      {R"({"prompt": "a", "top_p": 0})", "above 0.0 and at most 1.0"},
      {R"({"prompt": "a", "top_k": 1.5})", "\"top_k\" must be a whole number, 0 or more"},
      {R"({"prompt": "a", "max_tokens": 0})", "\"max_tokens\" must be a whole number, 1 or more"},
      {R"({"prompt": "a", "max_tokens": 2147483648})", "\"max_tokens\""},
      {R"({"prompt": "a", "max_tokens": 18446744073709551615})", "\"max_tokens\""},
      {R"({"prompt": "a", "n": 0})", "\"n\" must be a whole number from 1"},
      {R"({"prompt": "a", "seed": -1})", "\"seed\""},
      {R"({"prompt": "a", "logprobs": 21})", "from 0 to 20"},
      {R"({"prompt": "a", "ignore_eos": 1})", "true or false"},
      {R"({"prompt": "a", "stop": [1]})", "\"stop\" must be a text or a list of texts"},
      {R"({"prompt": "a", "stop": [""]})", "1 to 1024 bytes"},
      {R"({"prompt": "a", "stop_token_ids": 5})", "list of token ids"},
      {R"({"prompt": "a", "logit_bias": {"x": 1}})", "\"x\""},
      {R"({"prompt": "a", "logit_bias": {"1": 1, "01": 1}})", "twice"},
      {R"({"prompt": "a", "logit_bias": {"1": "x"}})", "token 1"},
      {R"({"prompt": "a", "logit_bias": [1]})", "must be an object"},
      {R"({"prompt": "a", "id": [1]})", "\"id\" must be"},
  };
  for (const auto& [line, part] : cases) EXPECT_THAT(Fault(line), HasSubstr(part)) << line;
}

TEST(RequestLineTest, TheIdIsKnownAlsoWhereTheRestIsWrong) {
  Json id;
  const RequestLineParser parser({}, RequestSettings());
  EXPECT_FALSE(parser.Parse(R"({"id": "seven"})", &id).ok());
  EXPECT_EQ(id, "seven");
  EXPECT_TRUE(parser.Parse(R"({"id": 7, "prompt": "a"})", &id).ok());
  EXPECT_EQ(id, 7);
  EXPECT_TRUE(parser.Parse(R"({"prompt": "a"})", &id).ok());
  EXPECT_TRUE(id.is_null());
}

TEST(FieldsJsonTest, EachSettingShows) {
  const RequestSettings limits;
  const std::string plain = DumpJson(FieldsJson({}, limits));
  for (const RequestField& field : LineFields(limits)) EXPECT_THAT(plain, HasSubstr(field.field));
  RequestFlags flags;
  flags.seed = 1;
  EXPECT_NE(DumpJson(FieldsJson(flags, limits)), plain);
  flags = {};
  flags.stopping.stop_strings = {"x"};
  EXPECT_NE(DumpJson(FieldsJson(flags, limits)), plain);
}

}  // namespace
}  // namespace berth::cli
