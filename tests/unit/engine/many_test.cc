// Many requests at once.
#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "engine_fixture.h"

namespace berth::test {
namespace {

class Many : public BothWays<> {};
BERTH_BOTH_WAYS(Many);

std::string Letters(std::string_view prompt, std::int64_t count) {
  const std::vector<TokenId> ids = Bytes(prompt);
  std::vector<TokenId> output;
  std::string text;
  for (std::int64_t i = 0; i < count; ++i) {
    output.push_back(HashedLetter(ids, output));
    text += static_cast<char>(output.back());
  }
  return text;
}

TEST_P(Many, ShareOneStep) {
  StartEngine({.num_blocks = 64, .max_step_tokens = 64, .max_running_sequences = 8});
  backend->CloseGate();
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  sinks.push_back(Submit(Request("first", "p", 20)));
  WaitForStepsAtGate();
  for (int i = 0; i < 5; ++i) sinks.push_back(Submit(Request(std::to_string(i), "prompt " + std::to_string(i), 3)));
  WaitForQueued(5);
  backend->LetOneStepGo();
  WaitForStepsAtGate();
  const std::vector<SeenRow> seen = backend->seen();
  EXPECT_EQ(std::ranges::count(seen, max_steps_in_flight, &SeenRow::step), 6) << "one decode and five prompts";
  WaitForLoad([](const Engine::Load& load) { return load.running_requests() == 6; });
  backend->OpenGate();
  for (const auto& sink : sinks) EXPECT_EQ(sink->WaitForEnd().finish_reason(), FinishReason::kLength);
  ExpectFullCapacity();
}

TEST_P(Many, EachGetsTheTokensThatItWouldGetAlone) {
  struct Asked {
    std::string prompt;
    std::int32_t tokens;
    std::shared_ptr<RecordingSink> sink;
  };
  for (const std::int32_t max_step_tokens : {2, 5, 16, 64}) {
    StartEngine({.num_blocks = 40, .block_tokens = 4, .max_step_tokens = max_step_tokens, .max_queued_requests = 1000});
    std::minstd_rand random(7);
    std::vector<Asked> asked;
    for (int i = 0; i < 200; ++i) {
      // Few prefixes, so that many are found in the cache.
      const std::string prompt = std::string(1 + random() % 20, static_cast<char>('a' + random() % 3)) + "!";
      const auto tokens = static_cast<std::int32_t>(1 + random() % 12);
      asked.push_back({prompt, tokens, Submit(Request(std::to_string(i), prompt, tokens))});
    }
    for (const Asked& one : asked) {
      EXPECT_EQ(one.sink->WaitForEnd().text(), Letters(one.prompt, one.tokens));
    }
    EXPECT_EQ(engine->load().reserved_blocks(), 0);
  }
}

TEST_P(Many, ASmallOneEndsWhileALargeOneRuns) {
  StartEngine({.num_blocks = 64, .max_step_tokens = 16});
  backend->CloseGate();
  const auto large = Submit(Request("large", "p", 60));
  const auto small = Submit(Request("small", "p", 2));
  for (int i = 0; i < 4; ++i) {
    backend->WaitForStepAtGate();
    backend->LetOneStepGo();
  }
  EXPECT_EQ(small->WaitForEnd().finish_reason(), FinishReason::kLength);
  EXPECT_FALSE(large->ended());
  backend->OpenGate();
  large->WaitForEnd();
}

// The engine's thread runs ahead of the text here: with nothing to compute, steps take no time.
TEST_P(Many, AStopStringFoundBehindTheStepsNeverLeaksTextAndCountsNoTokenBehindIt) {
  StartEngine({.num_blocks = 256,
               .block_tokens = 4,
               .max_context_tokens = 512,
               .max_step_tokens = 64,
               .max_queued_requests = 1000,
               .next_token = Script("one two END three four five", 'x')});
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 200; ++i) {
    TokenizedRequest request = Request(std::to_string(i), "p" + std::to_string(i), 100);
    request.spec.stopping.stop_strings = {"END"};
    sinks.push_back(Submit(std::move(request)));
  }
  for (const auto& sink : sinks) {
    sink->WaitForEnd();
    EXPECT_EQ(sink->finish_reason(), FinishReason::kStopString);
    EXPECT_EQ(sink->text(), "one two ");
    EXPECT_EQ(sink->token_ids().size(), 11U);
    EXPECT_EQ(sink->Only<Completed>()->usage.output_tokens, 11);
  }
  EXPECT_EQ(engine->load().reserved_blocks(), 0);
}

TEST_P(Many, AStopStringFreesTheBlocksWithinOneStep) {
  StartEngine({.max_step_tokens = 16, .next_token = Script("abEND", 'x')});
  backend->CloseGate();
  TokenizedRequest request = Request("stop", "p", 50);
  request.spec.stopping.stop_strings = {"END"};
  auto sink = std::make_shared<RecordingSink>();
  std::atomic<bool> finished = false;
  sink->set_hook([&](const StreamEvent& event) {
    if (!std::holds_alternative<Finished>(event)) return;
    finished = true;
    // However slow the sink is.
    WaitForLoad([](const Engine::Load& load) { return load.running_requests() == 0 && load.held_blocks == 0; });
  });
  ASSERT_FALSE(TrySubmit(std::move(request), sink).has_value());
  for (int i = 0; i < 5; ++i) {
    WaitForStepsAtGate();
    backend->LetOneStepGo();
  }
  WaitForStepsAtGate();
  while (!finished) std::this_thread::yield();
  EXPECT_FALSE(sink->ended()) << "a step of it is in flight";
  backend->OpenGate();
  EXPECT_EQ(sink->WaitForEnd().finish_reason(), FinishReason::kStopString);
  EXPECT_EQ(backend->steps(), 5 + max_steps_in_flight);
  ExpectFullCapacity();
}

TEST_P(Many, ASlowSinkDelaysNoStepAndHoldsNoBlock) {
  StartEngine({.num_blocks = 64, .max_step_tokens = 16});
  std::atomic<bool> reached = false;
  std::atomic<bool> go_on = false;
  auto slow = std::make_shared<RecordingSink>();
  slow->set_hook([&](const StreamEvent& event) {
    if (!std::holds_alternative<TokenDelta>(event)) return;
    reached = true;
    while (!go_on) std::this_thread::yield();
  });
  ASSERT_FALSE(TrySubmit(Request("slow", "p", 30), slow).has_value());
  while (!reached) std::this_thread::yield();
  const auto other = Submit(Request("other", "q", 30));
  WaitForLoad([](const Engine::Load& load) {
    return load.running_requests() == 0 && load.queued_requests() == 0 && load.reserved_blocks() == 0;
  });
  EXPECT_FALSE(slow->ended());
  go_on = true;
  EXPECT_EQ(slow->WaitForEnd().text(), Letters("p", 30));
  EXPECT_EQ(other->WaitForEnd().text(), Letters("q", 30));
}

TEST_P(Many, FromManyThreadsAllEndAndAllBlocksReturn) {
  StartEngine({.num_blocks = 64, .max_step_tokens = 16, .max_queued_requests = 64});
  std::vector<std::thread> threads;
  std::atomic<int> ended = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        TokenizedRequest request = Request(std::to_string(t) + "/" + std::to_string(i), "some prompt", 1 + i % 20);
        request.spec.sampling.n = 1 + i % 3;
        request.spec.stopping.stop_strings = {"e"};
        auto sink = std::make_shared<RecordingSink>();
        if (TrySubmit(std::move(request), sink).has_value()) continue;
        sink->WaitForEnd();
        ++ended;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(ended, 1);
  ExpectFullCapacity();
}

}  // namespace
}  // namespace berth::test
