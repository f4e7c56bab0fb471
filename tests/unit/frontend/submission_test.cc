#include "frontend/submission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fakes/fake_backend.h"
#include "fakes/fake_clock.h"
#include "fakes/fake_tokenizer.h"
#include "fakes/queuing_policy.h"

namespace berth {
namespace {

const RequestLimits kSubmissionLimits{.max_stop_strings = 1,
                                      .max_stop_string_bytes = 1,
                                      .max_logit_bias = 1,
                                      .max_logprobs = 1,
                                      .max_request_id_bytes = 128};

BackendInfo SmallBackend(std::int32_t vocab_size) {
  return {.name = "fake",
          .pool = {.num_blocks = 8, .block_tokens = 4},
          .kv_dtype = KvDtype::kBf16,
          .vocab_size = vocab_size,
          .max_context_tokens = 32,
          .max_step_tokens = 16};
}

class RecordingSink final : public EventSink {
 public:
  void OnEvent(StreamEvent event) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(ended_) << "an event after the last one";
    ended_ = std::holds_alternative<Completed>(event) || std::holds_alternative<Failed>(event);
    events_.push_back(std::move(event));
    if (ended_) ended_signal_.notify_all();
  }
  std::vector<StreamEvent> WaitForEnd() {
    std::unique_lock lock(mutex_);
    ended_signal_.wait(lock, [this] { return ended_; });
    return events_;
  }
  RefusalReason WaitForRefusal() {
    const std::vector<StreamEvent> events = WaitForEnd();
    const auto* failed = std::get_if<Failed>(&events.back());
    EXPECT_NE(failed, nullptr);
    return failed == nullptr ? RefusalReason::kInvalidRequest : failed->refusal.reason;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_signal_;
  std::vector<StreamEvent> events_;
  bool ended_ = false;
};

class SubmissionTest : public testing::Test {
 protected:
  GenerateSpec Spec(std::string id, std::string text = "abc") const {
    GenerateSpec spec;
    spec.request_id = std::move(id);
    spec.prompt_text = std::move(text);
    spec.stopping.max_output_tokens = 4;
    return spec;
  }
  std::shared_ptr<Submission> Start(GenerateSpec spec, const std::shared_ptr<EventSink>& sink, bool is_retry = false) {
    return Submission::Start(parts_, std::move(spec), is_retry, sink);
  }
  // Holds the pool's only thread until the returned promise is set.
  std::promise<void> BlockPool() {
    std::promise<void> release;
    std::promise<void> started;
    EXPECT_TRUE(pool_.PostTicketed([&started, done = release.get_future().share()] {
      started.set_value();
      done.wait();
    }));
    started.get_future().wait();
    return release;
  }

  test::FakeClock clock_;
  test::FakeTokenizer tokenizer_;
  test::FakeBackend backend_{SmallBackend(tokenizer_.vocab_size())};
  Engine engine_{{.max_context_tokens = 32,
                  .policy = test::QueuingPolicy(backend_.info().pool, 4, backend_.info().max_step_tokens, 2),
                  .calibration_steps = 0},
                 &backend_,
                 &tokenizer_,
                 &clock_};
  Codec codec_{kSubmissionLimits, "tiny", 32, &tokenizer_};
  TokenizerPool pool_{1, 4};
  FrontendParts parts_{&engine_, &tokenizer_, &clock_, &codec_, &pool_};
};

TEST_F(SubmissionTest, ATextRunsToItsEnd) {
  auto sink = std::make_shared<RecordingSink>();
  Start(Spec("r1"), sink);
  const std::vector<StreamEvent> events = sink->WaitForEnd();
  const auto* admitted = std::get_if<Admitted>(&events.front());
  ASSERT_NE(admitted, nullptr);
  EXPECT_EQ(admitted->prompt_tokens, 3);
  EXPECT_TRUE(std::holds_alternative<Completed>(events.back()));
}

TEST_F(SubmissionTest, TokenIdsNeedNoTokenizer) {
  std::promise<void> release = BlockPool();
  auto sink = std::make_shared<RecordingSink>();
  GenerateSpec spec = Spec("r1", "");
  spec.prompt_is_ids = true;
  spec.prompt_ids = {1, 2, 3, 4, 5};
  Start(std::move(spec), sink);
  EXPECT_EQ(std::get<Admitted>(sink->WaitForEnd().front()).prompt_tokens, 5);
  release.set_value();
}

TEST_F(SubmissionTest, ATextTooLongForAnyTokenizationTakesNoPlace) {
  auto sink = std::make_shared<RecordingSink>();
  const auto longest = std::size_t{32} * static_cast<std::size_t>(tokenizer_.longest_piece_bytes());
  Start(Spec("r1", std::string(longest + 1, 'x')), sink);
  EXPECT_EQ(sink->WaitForRefusal(), RefusalReason::kRequestTooLarge);
}

TEST_F(SubmissionTest, TheEnginesRefusalReachesTheSink) {
  auto sink = std::make_shared<RecordingSink>();
  Start(Spec("r1", std::string(40, 'x')), sink);
  EXPECT_EQ(sink->WaitForRefusal(), RefusalReason::kRequestTooLarge);
}

TEST_F(SubmissionTest, PlacesAreCountedWhileTheTokenizerIsBusyAndComeBackWithACancel) {
  std::promise<void> release = BlockPool();
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  std::vector<std::shared_ptr<Submission>> submissions;
  const auto start = [&](const std::string& id) {
    sinks.push_back(std::make_shared<RecordingSink>());
    submissions.push_back(Start(Spec(id), sinks.back()));
  };
  // However many places the engine gives, they end while nothing is tokenized.
  while (sinks.empty() || !std::holds_alternative<Refusal>(engine_.TakeTicket({.request_id = "probe"}))) {
    ASSERT_LT(sinks.size(), 10U);
    start("r" + std::to_string(sinks.size()));
  }
  start("one too many");
  EXPECT_EQ(sinks.back()->WaitForRefusal(), RefusalReason::kQueueFull);

  submissions.front()->Cancel();
  EXPECT_EQ(sinks.front()->WaitForRefusal(), RefusalReason::kCancelledByClient);
  start("in its place");
  release.set_value();
  EXPECT_TRUE(std::holds_alternative<Completed>(sinks.back()->WaitForEnd().back()));
  submissions.front()->Cancel();
}

TEST_F(SubmissionTest, ACancelEndsARunningRequest) {
  backend_.CloseGate();
  auto sink = std::make_shared<RecordingSink>();
  auto submission = Start(Spec("r1"), sink);
  backend_.WaitForStepAtGate();
  // The step at the gate belongs to the request, so it was submitted; whether Submit has returned does not matter.
  submission->Cancel();
  backend_.OpenGate();
  EXPECT_EQ(sink->WaitForRefusal(), RefusalReason::kCancelledByClient);
  submission->Cancel();
}

TEST_F(SubmissionTest, ACancelAtAnyMomentEndsTheRequestOnce) {
  for (int i = 0; i < 200; ++i) {
    auto sink = std::make_shared<RecordingSink>();
    auto submission = Start(Spec("r" + std::to_string(i)), sink);
    submission->Cancel();
    sink->WaitForEnd();
  }
}

TEST_F(SubmissionTest, AnIdInUseIsRefusedUnlessTheCallIsARetry) {
  std::promise<void> release = BlockPool();
  auto first = std::make_shared<RecordingSink>();
  const auto first_submission = Start(Spec("r1"), first);
  auto second = std::make_shared<RecordingSink>();
  Start(Spec("r1"), second);
  EXPECT_EQ(second->WaitForRefusal(), RefusalReason::kDuplicateRequestId);
  auto retry = std::make_shared<RecordingSink>();
  const auto retry_submission = Start(Spec("r1"), retry, /*is_retry=*/true);
  release.set_value();
  first->WaitForEnd();  // cancelled, unless it was done before that came through
  EXPECT_TRUE(std::holds_alternative<Completed>(retry->WaitForEnd().back()));
  auto again = std::make_shared<RecordingSink>();
  Start(Spec("r1"), again, /*is_retry=*/true);
  EXPECT_TRUE(std::holds_alternative<Completed>(again->WaitForEnd().back())) << "with nothing left to replace";
}

TEST_F(SubmissionTest, ARetryGetsThePlaceOfTheEarlierAttemptInAFullQueue) {
  std::promise<void> release = BlockPool();
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  while (!std::holds_alternative<Refusal>(engine_.TakeTicket({.request_id = "probe"}))) {
    ASSERT_LT(sinks.size(), 10U);
    sinks.push_back(std::make_shared<RecordingSink>());
    Start(Spec("r" + std::to_string(sinks.size())), sinks.back());
  }
  auto retry = std::make_shared<RecordingSink>();
  Start(Spec("r1"), retry, /*is_retry=*/true);
  auto stranger = std::make_shared<RecordingSink>();
  Start(Spec("stranger"), stranger, /*is_retry=*/true);
  EXPECT_EQ(stranger->WaitForRefusal(), RefusalReason::kQueueFull) << "who replaces nobody has no place";
  release.set_value();
  sinks.front()->WaitForEnd();
  EXPECT_TRUE(std::holds_alternative<Completed>(retry->WaitForEnd().back()));
}

TEST_F(SubmissionTest, ARetryThatIsRefusedLeavesTheEarlierAttemptAlone) {
  std::promise<void> release = BlockPool();
  auto first = std::make_shared<RecordingSink>();
  Start(Spec("r1"), first);
  auto retry = std::make_shared<RecordingSink>();
  GenerateSpec unknown_class = Spec("r1");
  unknown_class.service_class = 7;
  Start(std::move(unknown_class), retry, /*is_retry=*/true);
  EXPECT_EQ(retry->WaitForRefusal(), RefusalReason::kUnknownClass);
  release.set_value();
  EXPECT_TRUE(std::holds_alternative<Completed>(first->WaitForEnd().back()));
}

TEST_F(SubmissionTest, ARetryReplacesWhatRuns) {
  backend_.CloseGate();
  auto first = std::make_shared<RecordingSink>();
  const auto submission = Start(Spec("r1"), first);
  backend_.WaitForStepAtGate();
  auto retry = std::make_shared<RecordingSink>();
  Start(Spec("r1"), retry, /*is_retry=*/true);
  backend_.OpenGate();
  EXPECT_EQ(first->WaitForRefusal(), RefusalReason::kCancelledByClient);
  EXPECT_TRUE(std::holds_alternative<Completed>(retry->WaitForEnd().back()));
}

TEST_F(SubmissionTest, RetriesAtAnyMomentEndEachAttemptOnceAndEveryPlaceComesBack) {
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 300; ++i) {
    sinks.push_back(std::make_shared<RecordingSink>());
    Start(Spec("r" + std::to_string(i % 3 == 0 ? 0 : i % 2)), sinks.back(), /*is_retry=*/true);
  }
  for (const auto& sink : sinks) sink->WaitForEnd();
  std::vector<QueueTicket> tickets;
  while (tickets.size() < 10) {
    auto ticket = engine_.TakeTicket({.request_id = "t" + std::to_string(tickets.size())});
    if (std::holds_alternative<Refusal>(ticket)) break;
    tickets.push_back(std::move(std::get<QueueTicket>(ticket)));
  }
  EXPECT_EQ(tickets.size(), 2U);
}

TEST_F(SubmissionTest, AStoppedPoolMeansDraining) {
  pool_.Stop();
  auto sink = std::make_shared<RecordingSink>();
  Start(Spec("r1"), sink);
  EXPECT_EQ(sink->WaitForRefusal(), RefusalReason::kDraining);
}

}  // namespace
}  // namespace berth
