// Several choices of one prompt.
#include <algorithm>

#include "engine_fixture.h"

namespace berth::test {
namespace {

class Choices : public BothWays<> {
 protected:
  // Choice q puts out its own letter; the second one ends early.
  void StartLetters() {
    StartEngine({.num_blocks = 64, .block_tokens = 4, .max_step_tokens = 16});
    backend->set_next_token_of_choice([](std::int32_t choice, std::span<const TokenId> output) {
      if (choice == 1 && output.size() == 2) return FakeTokenizer::kEos;
      return 'a' + choice;
    });
  }
  TokenizedRequest Group(std::int32_t n, std::string_view prompt, std::int32_t max_output_tokens) const {
    TokenizedRequest request = Request("group", prompt, max_output_tokens);
    request.spec.sampling.n = n;
    return request;
  }
};
BERTH_BOTH_WAYS(Choices);

TEST_P(Choices, EachHasItsOwnTextAndItsOwnEnd) {
  // Prompts that fill their last block, and that do not: only the latter's is copied where the choices part.
  for (const std::string prompt : {"eight888", "ten tokens", "p"}) {
    StartLetters();
    const auto sink = Run(Group(3, prompt, 5));
    EXPECT_EQ(sink->text(0), "aaaaa") << prompt;
    EXPECT_EQ(sink->text(1), "bb") << prompt;
    EXPECT_EQ(sink->text(2), "ccccc") << prompt;
    ASSERT_EQ(sink->All<Finished>().size(), 3U);
    for (const Finished& finished : sink->All<Finished>()) {
      EXPECT_EQ(finished.reason, finished.index == 1 ? FinishReason::kStopToken : FinishReason::kLength);
    }
    EXPECT_EQ(sink->All<Admitted>().size(), 1U);
    EXPECT_EQ(sink->Only<Completed>()->usage.output_tokens, 5 + 3 + 5);
    EXPECT_EQ(sink->Only<Completed>()->usage.prompt_tokens, static_cast<std::int64_t>(prompt.size()));
    ExpectFullCapacity();
  }
}

TEST_P(Choices, OfOneTokenEachNeedNoBlockBehindThePrompt) {
  StartLetters();
  const auto sink = Run(Group(4, "eight888", 1));
  for (std::int32_t q = 0; q < 4; ++q) EXPECT_EQ(sink->token_ids(q).size(), 1U);
  EXPECT_EQ(sink->Only<Admitted>()->reserved_blocks, 2);
  EXPECT_EQ(backend->steps(), 1);
  ExpectFullCapacity();
}

TEST_P(Choices, ShareThePromptsLogprobsAndHaveTheirOwn) {
  StartLetters();
  TokenizedRequest request = Group(3, "ten tokens", 4);
  request.spec.output.prompt_logprobs = 1;
  request.spec.output.logprobs = 2;
  const auto sink = Run(std::move(request));
  EXPECT_EQ(sink->Only<Completed>()->prompt_logprobs.size(), 9U);
  for (const TokenDelta& delta : sink->All<TokenDelta>()) {
    ASSERT_EQ(delta.logprobs.size(), 1U);
    EXPECT_EQ(delta.logprobs[0].token_id, delta.token_ids[0]);
    EXPECT_EQ(delta.logprobs[0].logprob, FakeLogprob(delta.token_ids[0]));
    EXPECT_EQ(delta.logprobs[0].top.size(), 2U);
  }
}

TEST_P(Choices, EchoThePromptEach) {
  StartLetters();
  TokenizedRequest request = Group(2, "say ", 2);
  request.spec.output.echo_prompt = true;
  const auto sink = Run(std::move(request));
  EXPECT_EQ(sink->text(0), "say aa");
  EXPECT_EQ(sink->text(1), "say bb");
}

TEST_P(Choices, AStopStringEndsItsChoiceAlone) {
  StartEngine({.num_blocks = 64, .max_step_tokens = 16});
  backend->set_next_token_of_choice([](std::int32_t choice, std::span<const TokenId> output) {
    const std::string_view script = choice == 0 ? "xxENDxxxxx" : "yyyyyyyyyy";
    // Whoever checks the capacity afterwards asks for more than the script has.
    return static_cast<TokenId>(script[std::min(output.size(), script.size() - 1)]);
  });
  TokenizedRequest request = Group(2, "p", 10);
  request.spec.stopping.stop_strings = {"END"};
  const auto sink = Run(std::move(request));
  EXPECT_EQ(sink->text(0), "xx");
  EXPECT_EQ(sink->text(1), "yyyyyyyyyy");
  EXPECT_EQ(sink->Only<Completed>()->usage.output_tokens, 5 + 10);
  ExpectFullCapacity();
}

TEST_P(Choices, BeyondWhatTheServerRunsAreInvalid) {
  StartEngine({.max_step_tokens = 4});
  const auto refusal = TrySubmit(Group(5, "p", 2), std::make_shared<RecordingSink>());
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->reason, RefusalReason::kInvalidRequest);
  EXPECT_EQ(refusal->field, "sampling.n");
  EXPECT_EQ(refusal->limit, 4);
}

}  // namespace
}  // namespace berth::test
