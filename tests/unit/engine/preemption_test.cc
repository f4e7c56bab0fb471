// Classes: who is preempted for whom, and what the caller sees of it.
#include <atomic>
#include <thread>

#include "engine_fixture.h"

namespace berth::test {
namespace {

constexpr ClassId kInteractive = 0;
constexpr ClassId kBatch = 1;

class Preemption : public BothWays<> {
 protected:
  // 16 blocks of 4 tokens: 12 are guaranteed to interactive, 4 to batch, which may borrow the others.
  void StartClasses(NextToken next_token = HashedLetter) {
    Settings settings;
    settings.num_blocks = 16;
    settings.step_time = std::chrono::seconds(1);
    StartClasses(settings, std::move(next_token));
  }
  void StartClasses(Settings settings, NextToken next_token) {
    settings.max_step_tokens = 16;
    settings.next_token = std::move(next_token);
    settings.policy = [](Policy* policy) {
      policy->classes.resize(2);
      ClassPolicy& interactive = policy->classes[kInteractive];
      interactive.name = "interactive";
      interactive.priority = 100;
      interactive.kv_guarantee_blocks = 12;
      interactive.slot_guarantee = 8;
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
  }

  // Thirteen blocks: the pool has no room for seven more.
  TokenizedRequest BatchRequest() const {
    TokenizedRequest request = Request("batch", "ten tokens", batch_tokens_);
    request.spec.service_class = kBatch;
    return request;
  }
  TokenizedRequest InteractiveRequest() const {
    TokenizedRequest request = Request("interactive", "the interactive one.", interactive_tokens_);
    request.spec.service_class = kInteractive;
    return request;
  }

  // Runs `steps` steps of the batch request, then lets an interactive one take its blocks. A step of the interactive
  // one is at the gate when it returns.
  void Preempt(int steps) {
    for (int i = 0; i < steps; ++i) {
      WaitForStepsAtGate();
      if (i == steps - 1) break;
      backend->LetOneStepGo();
    }
    interactive_ = Submit(InteractiveRequest());
    WaitForQueued(1);
    backend->LetOneStepGo();
    WaitForLoad([](const Engine::Load& load) { return load.parked_requests() == 1 && load.running_requests() == 1; });
    WaitForStepsAtGate();
  }

  std::string Alone(const TokenizedRequest& request) const {
    std::vector<TokenId> output;
    std::string text;
    for (std::int32_t i = 0; i < request.spec.stopping.max_output_tokens; ++i) {
      output.push_back(HashedLetter(request.prompt, output));
      text += static_cast<char>(output.back());
    }
    return text;
  }

  std::int32_t batch_tokens_ = 40;
  std::int32_t interactive_tokens_ = 9;
  std::shared_ptr<RecordingSink> interactive_;
};
BERTH_BOTH_WAYS(Preemption);

TEST_P(Preemption, IsAPauseAndNothingElseToItsCaller) {
  for (const int steps : {1, 2, 5, 12}) {
    StartClasses();
    const auto batch = Submit(BatchRequest());
    Preempt(steps);
    EXPECT_EQ(engine->load().classes.at(kBatch).parked_requests, 1);
    const std::size_t before = batch->token_ids().size();
    backend->OpenGate();
    EXPECT_EQ(interactive_->WaitForEnd().text(), Alone(InteractiveRequest()));
    EXPECT_EQ(batch->WaitForEnd().text(), Alone(BatchRequest())) << "no token is repeated, lost or changed";
    EXPECT_LE(before, static_cast<std::size_t>(steps));
    EXPECT_EQ(batch->All<Admitted>().size(), 1U);
    const Usage usage = batch->Only<Completed>()->usage;
    EXPECT_EQ(usage.preemptions, 1);
    EXPECT_EQ(usage.output_tokens, 40);
    EXPECT_EQ(interactive_->Only<Completed>()->usage.preemptions, 0);
    EXPECT_EQ(engine->load().reserved_blocks(), 0);
  }
}

TEST_P(Preemption, CountsWhatIsComputedAgain) {
  StartClasses();
  const auto batch = Submit(BatchRequest());
  Preempt(12);
  backend->OpenGate();
  interactive_->WaitForEnd();
  batch->WaitForEnd();
  // 10 + 11 tokens were stored. What lay in full blocks may be found again, where the interactive request has not
  // taken them; the last, partial block never is.
  const Usage usage = batch->Only<Completed>()->usage;
  EXPECT_GE(usage.recomputed_tokens, 1);
  EXPECT_LE(usage.recomputed_tokens, 21);
}

TEST_P(Preemption, KeepsInTheHostsMemoryWhatWouldCostMoreToComputeAgain) {
  // 160 tokens in ten blocks, most of which the interactive request writes over.
  batch_tokens_ = 200;
  interactive_tokens_ = 160;
  StartClasses({.num_blocks = 16, .block_tokens = 16, .host_blocks = 16, .max_context_tokens = 256}, HashedLetter);
  const auto batch = Submit(BatchRequest());
  Preempt(151);
  backend->OpenGate();
  EXPECT_EQ(interactive_->WaitForEnd().text(), Alone(InteractiveRequest()));
  EXPECT_EQ(batch->WaitForEnd().text(), Alone(BatchRequest()));
  const Usage usage = batch->Only<Completed>()->usage;
  EXPECT_EQ(usage.preemptions, 1);
  EXPECT_LE(usage.recomputed_tokens, 16);
  EXPECT_GT(backend->swapped_blocks(), 0);
  EXPECT_EQ(engine->load().reserved_blocks(), 0);
}

TEST_P(Preemption, EndsAtOnceForAParkedRequestThatIsCancelled) {
  StartClasses();
  const auto batch = Submit(BatchRequest());
  Preempt(5);
  engine->Cancel(TicketOf("batch"));
  backend->LetOneStepGo();
  EXPECT_EQ(batch->WaitForEnd().failure(), RefusalReason::kCancelledByClient);
  EXPECT_EQ(batch->Only<Failed>()->usage.preemptions, 1);
  EXPECT_EQ(engine->load().parked_requests(), 0);
  backend->OpenGate();
  EXPECT_EQ(interactive_->WaitForEnd().finish_reason(), FinishReason::kLength);
}

TEST_P(Preemption, ADeadlineThatPassesMeanwhileStillGivesWhatThereIs) {
  StartClasses();
  TokenizedRequest request = BatchRequest();
  request.spec.deadline = clock.Now() + std::chrono::seconds(100);
  const auto batch = Submit(std::move(request));
  Preempt(5);
  clock.Advance(std::chrono::seconds(100));
  backend->LetOneStepGo();
  EXPECT_EQ(batch->WaitForEnd().finish_reason(), FinishReason::kDeadline);
  EXPECT_EQ(batch->token_ids().size(), 5U);
  backend->OpenGate();
  interactive_->WaitForEnd();
}

TEST_P(Preemption, AStopStringFoundMeanwhileCompletesTheRequest) {
  // The fifth token completes the stop string; the step that preempts the request is the one that draws it.
  StartClasses(Script("abEND", 'x'));
  TokenizedRequest request = BatchRequest();
  request.spec.stopping.stop_strings = {"END"};
  std::atomic<bool> held = true;
  std::atomic<bool> at_fifth = false;
  auto batch = std::make_shared<RecordingSink>();
  batch->set_hook([&, tokens = 0](const StreamEvent& event) mutable {
    if (!std::holds_alternative<TokenDelta>(event) || ++tokens != 4) return;
    at_fifth = true;
    while (held) std::this_thread::yield();  // the text stays behind the steps until the request is parked
  });
  ASSERT_FALSE(TrySubmit(std::move(request), batch).has_value());
  Preempt(5);
  while (!at_fifth) std::this_thread::yield();
  held = false;
  backend->OpenGate();
  EXPECT_EQ(batch->WaitForEnd().finish_reason(), FinishReason::kStopString);
  EXPECT_EQ(batch->text(), "ab");
  EXPECT_EQ(batch->Only<Completed>()->usage.output_tokens, 5);
  interactive_->WaitForEnd();
  EXPECT_EQ(engine->load().reserved_blocks(), 0);
}

TEST_P(Preemption, OfAGroupKeepsEveryChoiceAsItWas) {
  StartClasses();
  backend->set_next_token_of_choice([](std::int32_t choice, std::span<const TokenId> output) {
    return 'a' + static_cast<TokenId>((static_cast<std::size_t>(choice) * 7 + output.size()) % 26);
  });
  TokenizedRequest request = Request("batch", "ten tokens", 20);  // T = 29: 2 shared blocks, 6 more each
  request.spec.sampling.n = 2;
  request.spec.service_class = kBatch;
  const auto batch = Submit(std::move(request));
  Preempt(6);
  backend->OpenGate();
  batch->WaitForEnd();
  for (std::int32_t q = 0; q < 2; ++q) {
    const std::string text = batch->text(q);
    ASSERT_EQ(text.size(), 20U);
    for (std::size_t i = 0; i < text.size(); ++i) {
      EXPECT_EQ(text[i], static_cast<char>('a' + (static_cast<std::size_t>(q) * 7 + i) % 26));
    }
  }
  EXPECT_EQ(batch->Only<Completed>()->usage.preemptions, 1);
  interactive_->WaitForEnd();
  EXPECT_EQ(engine->load().reserved_blocks(), 0);
}

TEST_P(Preemption, NeverTakesThePlaceOfAParkedRequestInItsQueue) {
  StartClasses();
  const auto batch = Submit(BatchRequest());
  Preempt(3);
  auto later = BatchRequest();
  later.spec.request_id = "later";
  const auto second = Submit(std::move(later));
  std::atomic<bool> first_ended = false;
  backend->OpenGate();
  batch->WaitForEnd();
  first_ended = true;
  second->WaitForEnd();
  EXPECT_GT(second->Only<Admitted>()->queue_time, Duration(0));
  interactive_->WaitForEnd();
}

}  // namespace
}  // namespace berth::test
