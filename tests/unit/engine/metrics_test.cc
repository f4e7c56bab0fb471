// What the engine tells the metrics: each thing when it happens, and only then.
#include <algorithm>
#include <atomic>

#include "engine_fixture.h"

namespace berth::test {
namespace {

using std::chrono::seconds;

class EngineMetrics : public EngineFixture {
 protected:
  static Duration SumOfParts(const RecordingMetrics::Step& step) {
    Duration sum{};
    for (const StepPart& part : step.parts) sum += part.time;
    return sum;
  }
  // A step is told once the next one is submitted, or once there is none.
  std::vector<RecordingMetrics::Step> StepsOnceTold(std::size_t count) const {
    while (metrics.told().steps.size() < count) std::this_thread::yield();
    return metrics.told().steps;
  }
  std::int64_t Tokens(TokenCame::Kind kind) const {
    return std::ranges::count(metrics.told().tokens, kind, &TokenCame::kind);
  }
};

TEST_F(EngineMetrics, TheLoadShowsWhatRunsWaitsAndIsHeld) {
  StartEngine({.num_blocks = 16, .block_tokens = 4, .max_step_tokens = 8, .max_running_sequences = 1});
  backend->CloseGate();
  const auto running = Submit(Request("running", "ten tokens", 3));  // 12 tokens: 3 blocks
  backend->WaitForStepAtGate();
  clock.Advance(seconds(5));
  const auto first = Submit(Request("first", "seven..", 2));  // 2 blocks
  clock.Advance(seconds(1));
  const auto second = Submit(Request("second", "eight...", 5));  // 3 blocks
  WaitForQueued(2);
  LoadSnapshot load = metrics.told().load;
  ASSERT_EQ(load.classes.size(), 1U);
  const ClassSnapshot& c = load.classes[0];
  EXPECT_EQ(c.running_requests, 1);
  EXPECT_EQ(c.queued_requests, 2);
  EXPECT_EQ(c.parked_requests, 0);
  EXPECT_EQ(c.waiting_since, clock.Now() - seconds(1));
  EXPECT_EQ(c.used_blocks, 3);
  EXPECT_EQ(c.used_slots, 1);
  EXPECT_EQ(c.reach_blocks, 16);
  EXPECT_EQ(c.reach_slots, 1);
  EXPECT_EQ(c.waiting_blocks, 5);
  EXPECT_EQ(c.waiting_slots, 2);
  EXPECT_EQ(c.wanted_step_tokens, 8 + 7 + 8) << "of each prompt at most a step";
  EXPECT_FALSE(c.guarantee_unmet);
  EXPECT_EQ(load.held_blocks, 2) << "the first chunk's";
  EXPECT_EQ(load.unspent_blocks, 1);
  EXPECT_EQ(load.cached_blocks, 0);
  EXPECT_EQ(load.free_blocks, 14);
  EXPECT_EQ(load.max_slots, 1);
  EXPECT_EQ(load.step_token_budget, 8);
  ASSERT_EQ(load.queued.size(), 1U);
  EXPECT_EQ(load.queued[0].queued_requests, 2);

  backend->LetOneStepGo();
  backend->WaitForStepAtGate();
  backend->LetOneStepGo();
  WaitForLoad([](const LoadSnapshot& now) { return now.classes[0].wanted_step_tokens == 1 + 7 + 8; });

  backend->OpenGate();
  for (const auto& sink : {running, first, second}) sink->WaitForEnd();
  load = metrics.told().load;
  EXPECT_EQ(load.running_requests() + load.queued_requests(), 0);
  EXPECT_EQ(load.reserved_blocks(), 0);
  EXPECT_TRUE(load.queued.empty());
  EXPECT_FALSE(load.classes[0].waiting_since.has_value());
  EXPECT_EQ(load.classes[0].wanted_step_tokens, 0);
  EXPECT_GT(load.cached_blocks, 0) << "full blocks stay findable";
  EXPECT_EQ(load.pool_blocks(), 16);
}

TEST_F(EngineMetrics, AStepIsToldWithEachRequestsPartOfItsTime) {
  StartEngine({.num_blocks = 64, .max_step_tokens = 16, .step_time = seconds(3)});
  backend->CloseGate();
  const auto first = Submit(Request("first", "p", 4));
  backend->WaitForStepAtGate();
  const auto second = Submit(Request("second", "prompt", 2));
  WaitForQueued(1);
  backend->OpenGate();
  first->WaitForEnd();
  second->WaitForEnd();
  const auto steps = StepsOnceTold(4);
  ASSERT_EQ(steps.size(), 4U);
  for (const auto& step : steps) {
    EXPECT_EQ(step.busy, seconds(3));
    EXPECT_EQ(SumOfParts(step), step.busy);
  }
  ASSERT_EQ(steps[0].parts.size(), 1U);
  EXPECT_EQ(steps[0].parts[0].phase, StepPhase::kPrefill);
  EXPECT_FALSE(steps[0].host_gap.has_value()) << "nothing ran before it";
  ASSERT_EQ(steps[1].parts.size(), 2U) << "one decodes, one's prompt";
  EXPECT_NE(steps[1].parts[0].phase, steps[1].parts[1].phase);
  EXPECT_TRUE(steps[1].host_gap.has_value());
  ASSERT_EQ(steps[3].parts.size(), 1U);
  EXPECT_EQ(steps[3].parts[0].phase, StepPhase::kDecode);
  EXPECT_EQ(steps[3].parts[0].recomputed_tokens, 0);
}

TEST_F(EngineMetrics, TheGapBetweenTwoRequestsIsNoHostGap) {
  StartEngine();
  Run(Request("first", "p", 2));
  Run(Request("second", "p", 2));
  const auto steps = StepsOnceTold(4);
  EXPECT_TRUE(steps[1].host_gap.has_value());
  EXPECT_FALSE(steps[2].host_gap.has_value()) << "nobody wanted anything before it";
}

TEST_F(EngineMetrics, AFailedStepIsNotTold) {
  StartEngine();
  backend->FailAwait(1);
  EXPECT_EQ(Run(Request("fails", "p", 9))->failure(), RefusalReason::kBackendFault);
  Run(Request("after", "p", 1));
  EXPECT_EQ(StepsOnceTold(2).size(), 2U) << "one before it, one behind it";
}

TEST_F(EngineMetrics, ATokenIsToldWhenItsCallerSeesIt) {
  StartEngine({.max_step_tokens = 16});
  backend->CloseGate();
  const TimePoint arrival = clock.Now();
  std::atomic<int> heard = 0;
  const auto sink = std::make_shared<RecordingSink>();
  sink->set_hook([&](const StreamEvent& event) { heard += std::holds_alternative<TokenDelta>(event) ? 1 : 0; });
  ASSERT_FALSE(TrySubmit(Request("request", "p", 3), sink).has_value());
  for (int token = 1; token <= 3; ++token) {
    backend->WaitForStepAtGate();
    clock.Advance(seconds(token));
    backend->LetOneStepGo();
    while (heard < token) std::this_thread::yield();
  }
  sink->WaitForEnd();
  const auto tokens = metrics.told().tokens;
  ASSERT_EQ(tokens.size(), 3U) << "told before the request's last event";
  EXPECT_EQ(tokens[0].kind, TokenCame::Kind::kFirstOfRequest);
  EXPECT_EQ(tokens[0].after, clock.Now() - seconds(5) - arrival);
  EXPECT_EQ(tokens[1].kind, TokenCame::Kind::kNext);
  EXPECT_EQ(tokens[1].after, seconds(2));
  EXPECT_EQ(tokens[2].after, seconds(3));
}

TEST_F(EngineMetrics, EachChoiceHasAFirstTokenAndTheRequestOne) {
  StartEngine({.num_blocks = 64, .max_step_tokens = 16});
  TokenizedRequest request = Request("group", "p", 4);
  request.spec.sampling.n = 3;
  Run(std::move(request));
  EXPECT_EQ(Tokens(TokenCame::Kind::kFirstOfRequest), 1);
  EXPECT_EQ(Tokens(TokenCame::Kind::kFirstOfChoice), 2);
  EXPECT_EQ(Tokens(TokenCame::Kind::kNext), 3 * 3);
}

TEST_F(EngineMetrics, TokensBehindAStopStringAreNotTold) {
  StartEngine({.max_step_tokens = 16, .next_token = Script("abEND", 'x')});
  TokenizedRequest request = Request("stops", "p", 40);
  request.spec.stopping.stop_strings = {"END"};
  const auto sink = Run(std::move(request));
  EXPECT_EQ(std::ssize(metrics.told().tokens), sink->Only<Completed>()->usage.output_tokens);
}

TEST_F(EngineMetrics, AStartIsToldOnceWithWhatTheCacheHad) {
  StartEngine({.block_tokens = 4, .max_step_tokens = 16});
  Run(Request("first", "ten tokens", 2));
  Run(Request("again", "ten tokens", 2));
  TokenizedRequest request = Request("logprobs", "ten tokens", 2);
  request.spec.output.prompt_logprobs = 0;
  Run(std::move(request));
  const auto starts = metrics.told().starts;
  ASSERT_EQ(starts.size(), 3U);
  EXPECT_EQ(starts[0].looked_up_tokens, 10);
  EXPECT_EQ(starts[0].cached_tokens, 0);
  EXPECT_EQ(starts[1].prompt_tokens, 10);
  EXPECT_EQ(starts[1].cached_tokens, 8);
  EXPECT_EQ(starts[2].looked_up_tokens, 0) << "whoever wants its prompt's log-probabilities takes no hits";
}

TEST_F(EngineMetrics, WhatIsRefusedAtTheDoorStartsNothing) {
  StartEngine();
  EXPECT_EQ(Run(Request("large", "p", 1000))->failure(), RefusalReason::kRequestTooLarge);
  const auto told = metrics.told();
  EXPECT_TRUE(told.starts.empty() && told.tokens.empty() && told.steps.empty());
  EXPECT_TRUE(told.ends.empty()) << "ends are the frontend's to tell";
}

class PreemptionMetrics : public EngineMetrics {
 protected:
  static constexpr ClassId kInteractive = 0;
  static constexpr ClassId kBatch = 1;

  // A batch request has stored 160 tokens in ten of sixteen blocks when an interactive one takes them.
  void PreemptAndFinish(std::int32_t host_blocks) {
    Settings settings{.num_blocks = 16, .block_tokens = 16, .host_blocks = host_blocks, .max_context_tokens = 256};
    settings.max_step_tokens = 16;
    // Steps that all take the same teach that copies do not pay.
    if (host_blocks == 0) settings.step_time = seconds(1);
    settings.policy = [](Policy* policy) {
      policy->classes.resize(2);
      policy->classes[kInteractive].priority = 100;
      policy->classes[kInteractive].kv_guarantee_blocks = 12;
      policy->classes[kInteractive].slot_guarantee = 8;
      policy->classes[kInteractive].name = "interactive";
      ClassPolicy& batch = policy->classes[kBatch];
      batch.name = "batch";
      batch.kv_guarantee_blocks = 4;
      batch.kv_borrowing_limit_blocks = 12;
      batch.slot_guarantee = 4;
      batch.preemptible = true;
      batch.max_wait = std::chrono::hours(1000);
    };
    StartEngine(settings);
    backend->CloseGate();
    TokenizedRequest request = Request("batch", "ten tokens", 200);
    request.spec.service_class = kBatch;
    batch_ = Submit(std::move(request));
    for (int i = 0; i < 150; ++i) {
      backend->WaitForStepAtGate();
      backend->LetOneStepGo();
    }
    backend->WaitForStepAtGate();
    const auto interactive = Submit(Request("interactive", "the interactive one.", 160));
    WaitForQueued(1);
    backend->OpenGate();
    interactive->WaitForEnd();
    batch_->WaitForEnd();
  }

  std::shared_ptr<RecordingSink> batch_;
};

TEST_F(PreemptionMetrics, WhatIsComputedAgainIsToldAsSuch) {
  PreemptAndFinish(/*host_blocks=*/0);
  const auto told = metrics.told();
  ASSERT_EQ(told.preemptions.size(), 1U);
  EXPECT_EQ(told.preemptions[0].first, kBatch);
  EXPECT_EQ(told.preemptions[0].second, PreemptionMode::kRecompute);
  EXPECT_EQ(told.starts.size(), 2U) << "starting again is no start";
  EXPECT_EQ(told.allocation_failures, 0) << "there is no memory that could be full";
  std::int64_t recomputed = 0;
  for (const auto& step : told.steps) {
    for (const StepPart& part : step.parts) {
      recomputed += part.recomputed_tokens;
      EXPECT_LE(part.recompute_time, part.time);
      EXPECT_EQ(part.recompute_time > Duration::zero(), part.recomputed_tokens > 0);
      EXPECT_TRUE(part.recomputed_tokens == 0 || part.phase == StepPhase::kPrefill);
    }
  }
  EXPECT_GT(recomputed, 0);
  EXPECT_EQ(recomputed, batch_->Only<Completed>()->usage.recomputed_tokens);
}

TEST_F(PreemptionMetrics, WhatGoesToTheHostsMemoryIsASwap) {
  PreemptAndFinish(/*host_blocks=*/16);
  ASSERT_EQ(metrics.told().preemptions.size(), 1U);
  EXPECT_EQ(metrics.told().preemptions[0].second, PreemptionMode::kSwap);
  EXPECT_EQ(metrics.told().allocation_failures, 0);
}

TEST_F(PreemptionMetrics, HostMemoryThatIsTooSmallIsAFailureToAllocate) {
  PreemptAndFinish(/*host_blocks=*/1);
  EXPECT_EQ(metrics.told().preemptions.at(0).second, PreemptionMode::kRecompute);
  EXPECT_EQ(metrics.told().allocation_failures, 1);
}

// Whether a request met its deadline, by what its class requires.
class MetDeadline : public EngineMetrics {
 protected:
  void Start(DeadlineRequirement require) {
    StartEngine({.num_blocks = 64, .max_step_tokens = 64, .step_time = seconds(1), .policy = [require](Policy* policy) {
                   policy->classes[0].require = require;
                   policy->classes[0].useful_tokens = 3;
                 }});
  }
  // Runs a request of so many tokens that ends after `time`, a second a token.
  std::optional<bool> Met(std::int32_t tokens, Duration time, bool partial = true) {
    TokenizedRequest request = Request("r", "p", tokens);
    request.spec.deadline = clock.Now() + time;
    request.spec.partial_at_deadline = partial;
    const auto sink = Run(std::move(request));
    const auto completed = sink->Only<Completed>();
    return completed.has_value() ? completed->met_deadline : sink->Only<Failed>()->met_deadline;
  }
};

TEST_F(MetDeadline, IsToldOnlyWhereThereIsOne) {
  Start(DeadlineRequirement::kFirstToken);
  EXPECT_EQ(Run(Request("r", "p", 2))->Only<Completed>()->met_deadline, std::nullopt);
}

TEST_F(MetDeadline, ByItsFirstToken) {
  Start(DeadlineRequirement::kFirstToken);
  EXPECT_EQ(Met(50, seconds(4)), true) << "cut off, but in time";
  EXPECT_EQ(Met(50, seconds(4), /*partial=*/false), true) << "what the class requires was there";
}

TEST_F(MetDeadline, ByUsefulOutput) {
  Start(DeadlineRequirement::kUsefulOutput);
  EXPECT_EQ(Met(50, seconds(2)), false);
  EXPECT_EQ(Met(50, seconds(3)), true);
  EXPECT_EQ(Met(2, seconds(5)), true) << "all that was asked for";
}

TEST_F(MetDeadline, ByTheFullOutput) {
  Start(DeadlineRequirement::kFullOutput);
  EXPECT_EQ(Met(5, seconds(4)), false);
  EXPECT_EQ(Met(5, seconds(5)), true);
}

TEST_F(MetDeadline, OfAGroupWhenEveryChoiceHasIt) {
  Start(DeadlineRequirement::kUsefulOutput);
  backend->set_next_token_of_choice([](std::int32_t choice, std::span<const TokenId> output) {
    return choice == 1 && output.size() == 1 ? FakeTokenizer::kEos : 'a';
  });
  TokenizedRequest request = Request("group", "p", 50);
  request.spec.sampling.n = 2;
  request.spec.deadline = clock.Now() + seconds(3);
  EXPECT_EQ(Run(std::move(request))->Only<Completed>()->met_deadline, true) << "a short answer is a whole one";
}

TEST_F(MetDeadline, MissedInTheQueueAndNotToldOfWhatWasNeverLetInOrWasCancelled) {
  StartEngine({.max_running_sequences = 1});
  backend->CloseGate();
  const auto running = Submit(Request("running", "p", 5));
  backend->WaitForStepAtGate();
  const auto with_deadline = [&](const char* id) {
    TokenizedRequest request = Request(id, "p", 5);
    request.spec.deadline = clock.Now() + seconds(2);
    return request;
  };
  const auto queued = Submit(with_deadline("queued"));
  const auto cancelled = Submit(with_deadline("cancelled"));
  WaitForQueued(2);
  engine->Cancel(TicketOf("cancelled"));
  backend->LetOneStepGo();
  EXPECT_EQ(cancelled->WaitForEnd().Only<Failed>()->met_deadline, std::nullopt);
  TokenizedRequest late = with_deadline("late");
  clock.Advance(seconds(2));
  const auto refused = Submit(std::move(late));
  EXPECT_EQ(refused->WaitForEnd().failure(), RefusalReason::kDeadlineExceeded);
  EXPECT_EQ(refused->Only<Failed>()->met_deadline, std::nullopt);
  backend->OpenGate();
  EXPECT_EQ(queued->WaitForEnd().failure(), RefusalReason::kDeadlineExceeded);
  EXPECT_EQ(queued->Only<Failed>()->met_deadline, false);
  running->WaitForEnd();
}

}  // namespace
}  // namespace berth::test
