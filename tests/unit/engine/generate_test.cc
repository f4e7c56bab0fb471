// What a request gets that nothing disturbs.
#include <algorithm>
#include <numeric>

#include "engine_fixture.h"

namespace berth::test {
namespace {

class Generate : public BothWays<> {};
BERTH_BOTH_WAYS(Generate);

std::string ExpectedLetters(std::string_view prompt, int count) {
  const std::vector<TokenId> ids = Bytes(prompt);
  std::vector<TokenId> output;
  std::string text;
  for (int i = 0; i < count; ++i) {
    output.push_back(HashedLetter(ids, output));
    text += static_cast<char>(output.back());
  }
  return text;
}

TEST_P(Generate, SendsAdmittedThenOneDeltaATokenThenFinishedThenCompleted) {
  StartEngine();
  TokenizedRequest request = Request("one", "prompt", 3);
  request.spec.sampling.seed = 77;
  const auto sink = Run(std::move(request));
  const std::vector<StreamEvent> events = sink->events();
  ASSERT_EQ(events.size(), 6U);
  const auto& admitted = std::get<Admitted>(events[0]);
  EXPECT_EQ(admitted.request_id, "one");
  EXPECT_EQ(admitted.reserved_blocks, 2);
  EXPECT_EQ(admitted.max_output_tokens, 3);
  EXPECT_EQ(admitted.seed, 77U);
  EXPECT_EQ(admitted.prompt_tokens, 6);
  EXPECT_EQ(admitted.cached_tokens, 0);
  for (int i = 1; i <= 3; ++i)
    EXPECT_EQ(std::get<TokenDelta>(events[static_cast<std::size_t>(i)]).token_ids.size(), 1U);
  EXPECT_EQ(std::get<Finished>(events[4]).reason, FinishReason::kLength);
  EXPECT_TRUE(std::holds_alternative<Completed>(events[5]));
  EXPECT_EQ(sink->text(), ExpectedLetters("prompt", 3));
}

TEST_P(Generate, TokensDoNotDependOnChunksBlocksOrWhatRanBefore) {
  const std::string prompt = "a prompt of some thirty tokens.";
  for (const std::int32_t max_step_tokens : {1, 3, 16, 100}) {
    for (const std::int32_t block_tokens : {1, 4, 16}) {
      StartEngine({.num_blocks = 64 / block_tokens, .block_tokens = block_tokens, .max_step_tokens = max_step_tokens});
      Run(Request("before", "another", 7));
      EXPECT_EQ(Run(Request("this", prompt, 20))->text(), ExpectedLetters(prompt, 20));
    }
  }
}

TEST_P(Generate, PrefillsInChunksOfTheStepsSizeThenDecodesOneTokenAStep) {
  StartEngine({.max_step_tokens = 4});
  Run(Request("chunks", "ten tokens", 3));
  std::vector<std::pair<int, int>> rows;
  for (const SeenRow& step : backend->seen()) rows.emplace_back(step.first_position, step.num_tokens);
  EXPECT_EQ(rows, (std::vector<std::pair<int, int>>{{0, 4}, {4, 4}, {8, 2}, {10, 1}, {11, 1}}));
}

TEST_P(Generate, TakesBlocksOnlyAsTokensAreStoredAndNeverMoreThanItReserved) {
  StartEngine({.max_step_tokens = 4});
  const auto sink = Run(Request("blocks", "ten tokens", 7));  // T = 16: four blocks of four
  EXPECT_EQ(sink->Only<Admitted>()->reserved_blocks, 4);
  std::vector<std::int32_t> held;
  for (const SeenRow& step : backend->seen()) held.push_back(step.num_blocks);
  EXPECT_EQ(held, (std::vector<std::int32_t>{1, 2, 3, 3, 3, 4, 4, 4, 4}));
  EXPECT_EQ(sink->Only<Completed>()->usage.peak_blocks, 4);
}

TEST_P(Generate, OneOutputTokenNeedsNoDecodeStep) {
  StartEngine({.max_step_tokens = 100});
  const auto sink = Run(Request("one", "eight888", 1));
  EXPECT_EQ(backend->seen().size(), 1U);
  EXPECT_EQ(sink->Only<Admitted>()->reserved_blocks, 2);
  EXPECT_EQ(sink->token_ids().size(), 1U);
}

TEST_P(Generate, FillsTheContextToItsLastToken) {
  StartEngine({.num_blocks = 16, .block_tokens = 4, .max_context_tokens = 64});
  const auto sink = Run(Request("full", "four", 60));
  EXPECT_EQ(sink->finish_reason(), FinishReason::kLength);
  EXPECT_EQ(sink->token_ids().size(), 60U);
}

TEST_P(Generate, ADefaultOutputLengthIsCutToTheContextAndTold) {
  StartEngine({.max_context_tokens = 20});
  TokenizedRequest request = Request("default", "sixteen tokens!!", 256);
  request.spec.stopping.max_output_tokens_is_default = true;
  const auto sink = Run(std::move(request));
  EXPECT_EQ(sink->Only<Admitted>()->max_output_tokens, 4);
  EXPECT_EQ(sink->token_ids().size(), 4U);
}

TEST_P(Generate, EosEndsTheOutputInsideTokenIdsButOutsideTheText) {
  StartEngine({.next_token = Script("bye", FakeTokenizer::kEos)});
  const auto sink = Run(Request("eos", "p", 20));
  EXPECT_EQ(sink->finish_reason(), FinishReason::kStopToken);
  EXPECT_EQ(std::get<TokenId>(sink->Only<Finished>()->stop_match), FakeTokenizer::kEos);
  EXPECT_EQ(sink->text(), "bye");
  EXPECT_EQ(sink->token_ids(), (std::vector<TokenId>{'b', 'y', 'e', FakeTokenizer::kEos}));
  EXPECT_EQ(sink->Only<Completed>()->usage.output_tokens, 4);
}

TEST_P(Generate, AStopStringEndsTheOutputAndNothingOfItIsEverSent) {
  StartEngine({.next_token = Script("one two END three", 'x')});
  TokenizedRequest request = Request("stop", "p", 30);
  request.spec.stopping.stop_strings = {"END", "never"};
  const auto sink = Run(std::move(request));
  EXPECT_EQ(sink->finish_reason(), FinishReason::kStopString);
  EXPECT_EQ(std::get<std::string>(sink->Only<Finished>()->stop_match), "END");
  EXPECT_EQ(sink->text(), "one two ");
  EXPECT_EQ(sink->Only<Completed>()->usage.output_tokens, 11);
}

TEST_P(Generate, BansStopTokensUntilMinOutputTokensThenLetsThemCome) {
  StartEngine({.next_token = Script("", FakeTokenizer::kEos)});
  TokenizedRequest request = Request("min", "p", 20);
  request.spec.stopping.min_output_tokens = 3;
  request.spec.stopping.stop_token_ids = {'q'};
  const auto sink = Run(std::move(request));
  const std::vector<TokenId> ids = sink->token_ids();
  ASSERT_EQ(ids.size(), 4U);
  EXPECT_EQ(ids.back(), FakeTokenizer::kEos);
  EXPECT_EQ(sink->finish_reason(), FinishReason::kStopToken);
  const TokenId padding = tokenizer.vocab_size();
  const std::vector<TokenId> early = {
      'q', FakeTokenizer::kEos, FakeTokenizer::kEndOfTurn, padding, padding + 1, padding + 2, padding + 3, padding + 4};
  const std::vector<SeenRow> seen = backend->seen();
  EXPECT_EQ(seen[2].banned, early);
  EXPECT_EQ(seen[3].banned, std::vector<TokenId>(early.begin() + 3, early.end()));
}

TEST_P(Generate, IdsBeyondTheTokenizersVocabularyAreNeverDrawnNorAccepted) {
  const TokenId padding = tokenizer.vocab_size();
  StartEngine({.padding_ids = 3, .next_token = Script("", padding + 1)});
  const auto sink = Run(Request("padded", "p", 5));
  for (const TokenId id : sink->token_ids()) EXPECT_LT(id, padding);

  for (const TokenId bad : {padding, -1}) {
    TokenizedRequest request = Request("bad", "p", 5);
    request.prompt.push_back(bad);
    const Refusal refusal = Refused(std::move(request));
    EXPECT_EQ(refusal.reason, RefusalReason::kInvalidRequest);
    EXPECT_EQ(refusal.field, "token_ids");
  }
}

TEST_P(Generate, EchoSendsThePromptAloneBeforeTheFirstToken) {
  StartEngine({.next_token = Script("!", FakeTokenizer::kEos)});
  TokenizedRequest request = Request("echo", "the prompt", 5);
  request.spec.output.echo_prompt = true;
  request.spec.output.logprobs = 0;
  const auto sink = Run(std::move(request));
  const auto deltas = sink->All<TokenDelta>();
  ASSERT_EQ(deltas.size(), 3U);
  EXPECT_EQ(deltas[0].text, "the prompt");
  EXPECT_TRUE(deltas[0].token_ids.empty()) << "token ids are the output's";
  EXPECT_TRUE(deltas[0].logprobs.empty());
  EXPECT_EQ(deltas[1].text, "!");
  EXPECT_EQ(sink->text(), "the prompt!");
}

TEST_P(Generate, LogprobsComeWithEachTokenWhereAskedFor) {
  StartEngine({.next_token = Script("ab", FakeTokenizer::kEos)});
  for (const std::int32_t asked : {kNoLogprobs, 0, 2}) {
    TokenizedRequest request = Request("logprobs", "p", 2);
    request.spec.output.logprobs = asked;
    const auto sink = Run(std::move(request));
    for (const TokenDelta& delta : sink->All<TokenDelta>()) {
      if (asked == kNoLogprobs) {
        EXPECT_TRUE(delta.logprobs.empty());
        continue;
      }
      ASSERT_EQ(delta.logprobs.size(), delta.token_ids.size());
      EXPECT_EQ(delta.logprobs[0].token_id, delta.token_ids[0]);
      EXPECT_EQ(delta.logprobs[0].logprob, FakeLogprob(delta.token_ids[0]));
      ASSERT_EQ(delta.logprobs[0].top.size(), static_cast<std::size_t>(asked));
      for (std::size_t k = 0; k < delta.logprobs[0].top.size(); ++k) {
        EXPECT_EQ(delta.logprobs[0].top[k].token_id, static_cast<TokenId>(k));
      }
    }
    EXPECT_TRUE(sink->Only<Completed>()->prompt_logprobs.empty());
  }
}

TEST_P(Generate, PromptLogprobsCoverEveryPromptTokenButTheFirstAcrossChunks) {
  const std::string prompt = "ten tokens";
  for (const std::int32_t max_step_tokens : {1, 3, 4, 10, 64}) {
    StartEngine({.max_step_tokens = max_step_tokens});
    TokenizedRequest request = Request("prompt logprobs", prompt, 3);
    request.spec.output.prompt_logprobs = 1;
    const auto sink = Run(std::move(request));
    const auto logprobs = sink->Only<Completed>()->prompt_logprobs;
    ASSERT_EQ(logprobs.size(), prompt.size() - 1) << max_step_tokens;
    for (std::size_t i = 0; i < logprobs.size(); ++i) {
      EXPECT_EQ(logprobs[i].token_id, prompt[i + 1]);
      EXPECT_EQ(logprobs[i].logprob, FakeLogprob(prompt[i + 1]));
      EXPECT_EQ(logprobs[i].top.size(), 1U);
    }
    EXPECT_EQ(sink->text(), ExpectedLetters(prompt, 3));
    EXPECT_TRUE(sink->All<TokenDelta>()[0].logprobs.empty());
  }
}

TEST_P(Generate, APromptOfOneTokenHasNoPromptLogprobs) {
  StartEngine();
  TokenizedRequest request = Request("short", "p", 2);
  request.spec.output.prompt_logprobs = 5;
  EXPECT_TRUE(Run(std::move(request))->Only<Completed>()->prompt_logprobs.empty());
}

TEST_P(Generate, WhatNeverFitsIsRefusedWithTheLimitThatBinds) {
  StartEngine({.num_blocks = 5, .block_tokens = 4, .max_context_tokens = 64});
  const Refusal blocks = Refused(Request("blocks", "four", 18));  // T = 21: six blocks
  EXPECT_EQ(blocks.reason, RefusalReason::kRequestTooLarge);
  EXPECT_EQ(blocks.limit_name, "kv_blocks");
  EXPECT_EQ(blocks.limit, 5);
  EXPECT_EQ(blocks.asked, 6);
  const Refusal context = Refused(Request("context", "four", 61));
  EXPECT_EQ(context.reason, RefusalReason::kRequestTooLarge);
  EXPECT_EQ(context.limit_name, "context_tokens");
  EXPECT_EQ(context.limit, 64);
  EXPECT_EQ(context.asked, 65);
  EXPECT_EQ(Run(Request("fits", "four", 17))->finish_reason(), FinishReason::kLength);
}

}  // namespace
}  // namespace berth::test
