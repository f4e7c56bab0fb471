#include "frontend/call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fakes/fake_clock.h"
#include "fakes/fake_tokenizer.h"
#include "fakes/recording_metrics.h"
#include "frontend/call_registry.h"

namespace berth {
namespace {

using ::testing::ElementsAre;

// Keeps what the call did; crashes where gRPC would.
class FakeTransport final : public CallTransport {
 public:
  void Write(const google::protobuf::Message& message) override {
    ASSERT_FALSE(writing) << "two writes in flight";
    ASSERT_FALSE(ending.has_value()) << "a write after Finish";
    writing = true;
    Keep(message);
  }
  void Finish(const google::protobuf::Message* last, const CallEnding& how) override {
    ASSERT_FALSE(writing) << "Finish over a write";
    ASSERT_FALSE(ending.has_value()) << "Finish twice";
    if (last != nullptr) Keep(*last);
    ending = how;
    if (on_finish) on_finish();
  }
  std::function<void()> SlowReaderAborter() override {
    return [this] { ++aborts; };
  }

  // The stream's messages, or the unary answer.
  template <typename Message = v1::GenerateStreamResponse>
  Message Sent(std::size_t i) const {
    Message message;
    EXPECT_TRUE(message.ParseFromString(sent.at(i)));
    return message;
  }
  std::optional<v1::Usage> UsageTrailer() const {
    for (const auto& [key, value] : ending.value().trailers) {
      v1::Usage usage;
      if (key == "berth-usage-bin" && usage.ParseFromString(value)) return usage;
    }
    return std::nullopt;
  }

  std::vector<std::string> sent;
  bool writing = false;
  std::optional<CallEnding> ending;
  std::function<void()> on_finish;
  int aborts = 0;

 private:
  void Keep(const google::protobuf::Message& message) { sent.push_back(message.SerializeAsString()); }
};

TokenDelta Delta(std::string text, std::vector<TokenId> ids = {}) { return {0, std::move(text), std::move(ids), {}}; }

Completed Done(std::int64_t output_tokens) {
  Completed completed;
  completed.usage.output_tokens = output_tokens;
  return completed;
}

Failed Refused(RefusalReason reason) {
  Failed failed;
  failed.refusal.reason = reason;
  failed.refusal.message = "words";
  return failed;
}

class CallTest : public testing::Test {
 protected:
  template <typename CallType>
  std::shared_ptr<CallType> Make(bool return_token_ids = false) {
    OutputSpec output;
    output.return_token_ids = return_token_ids;
    const CallFacts facts{.names = {.request_id = "r1", .trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"},
                          .service_class = 1,
                          .tenant = 2,
                          .choices = 3,
                          .arrival = clock_.Now()};
    return std::make_shared<CallType>(&clock_, &metrics_, EventEncoder(&tokenizer_, output, "batch"), facts,
                                      &transport_);
  }
  void WriteDone(StreamCall* call, bool ok = true) {
    transport_.writing = false;
    call->OnWriteDone(ok);
  }

  test::FakeClock clock_;
  test::FakeTokenizer tokenizer_;
  test::RecordingMetrics metrics_;
  FakeTransport transport_;
};

TEST_F(CallTest, AStreamSendsEventsInOrderAndTheLastWithTheStatus) {
  auto call = Make<StreamCall>(true);
  call->OnEvent(Admitted{.request_id = "r1",
                         .reserved_blocks = 4,
                         .queue_time = std::chrono::seconds(2),
                         .max_output_tokens = 9,
                         .seed = 77,
                         .prompt_tokens = 5,
                         .cached_tokens = 0});
  WriteDone(call.get());
  call->OnEvent(Delta("a", {97}));
  WriteDone(call.get());
  call->OnEvent(Finished{0, FinishReason::kStopString, std::string("b")});
  WriteDone(call.get());
  call->OnEvent(Done(1));

  ASSERT_EQ(transport_.sent.size(), 4U);
  const v1::Admitted admitted = transport_.Sent(0).admitted();
  EXPECT_EQ(admitted.request_id(), "r1");
  EXPECT_EQ(admitted.reserved_blocks(), 4);
  EXPECT_EQ(admitted.queue_time().seconds(), 2);
  EXPECT_EQ(admitted.max_output_tokens(), 9);
  EXPECT_EQ(admitted.seed(), 77U);
  EXPECT_EQ(admitted.prompt_tokens(), 5);
  ASSERT_EQ(transport_.Sent(1).tokens().deltas_size(), 1);
  EXPECT_EQ(transport_.Sent(1).tokens().deltas(0).text(), "a");
  EXPECT_THAT(transport_.Sent(1).tokens().deltas(0).token_ids(), ElementsAre(97));
  EXPECT_EQ(transport_.Sent(2).finished().finish_reason(), v1::FINISH_REASON_STOP_STRING);
  EXPECT_EQ(transport_.Sent(2).finished().stop_match().stop_string(), "b");
  EXPECT_EQ(transport_.Sent(3).completed().usage().output_tokens(), 1);
  ASSERT_TRUE(transport_.ending.has_value());
  EXPECT_TRUE(transport_.ending->status.ok());
  EXPECT_EQ(transport_.UsageTrailer()->output_tokens(), 1);
}

TEST_F(CallTest, DeltasThatPileUpBehindAWriteGoOutAsOne) {
  auto call = Make<StreamCall>(true);
  call->OnEvent(Admitted{});
  for (const TokenId id : {104, 101, 121}) call->OnEvent(Delta(std::string(1, static_cast<char>(id)), {id}));
  EXPECT_EQ(transport_.sent.size(), 1U) << "one write in flight";
  WriteDone(call.get());
  ASSERT_EQ(transport_.sent.size(), 2U);
  ASSERT_EQ(transport_.Sent(1).tokens().deltas_size(), 1);
  EXPECT_EQ(transport_.Sent(1).tokens().deltas(0).text(), "hey");
  EXPECT_THAT(transport_.Sent(1).tokens().deltas(0).token_ids(), ElementsAre(104, 101, 121));
  WriteDone(call.get());
  EXPECT_EQ(transport_.sent.size(), 2U);
  EXPECT_FALSE(transport_.ending.has_value());
}

TEST_F(CallTest, MergedMessagesStayBounded) {
  auto call = Make<StreamCall>(true);
  call->OnEvent(Admitted{});
  constexpr int kTokens = 3000;
  for (int i = 0; i < kTokens; ++i) call->OnEvent(Delta("x", {120}));
  call->OnEvent(Done(kTokens));
  while (!transport_.ending) WriteDone(call.get());
  int seen = 0;
  for (std::size_t i = 1; i + 1 < transport_.sent.size(); ++i) {
    const int tokens = transport_.Sent(i).tokens().deltas(0).token_ids_size();
    EXPECT_LE(tokens, 1024);
    seen += tokens;
  }
  EXPECT_EQ(seen, kTokens);
}

TEST_F(CallTest, DeltasThatShowNothingAreNotSent) {
  auto call = Make<StreamCall>();
  call->OnEvent(Delta("", {97}));
  EXPECT_TRUE(transport_.sent.empty());
  call->OnEvent(Delta("ab", {98}));
  ASSERT_EQ(transport_.sent.size(), 1U);
  EXPECT_EQ(transport_.Sent(0).tokens().deltas(0).token_ids_size(), 0) << "ids were not asked for";
}

TEST_F(CallTest, ARefusalBeforeAdmissionSendsNothingButTheStatus) {
  auto call = Make<StreamCall>();
  call->OnEvent(Refused(RefusalReason::kQueueFull));
  EXPECT_TRUE(transport_.sent.empty());
  ASSERT_TRUE(transport_.ending.has_value());
  EXPECT_EQ(transport_.ending->status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_FALSE(transport_.UsageTrailer().has_value());
}

TEST_F(CallTest, AFailureAfterAdmissionSendsWhatThereWasAndTheUsage) {
  auto call = Make<StreamCall>();
  call->OnEvent(Admitted{});
  call->OnEvent(Delta("partial"));
  Failed failed = Refused(RefusalReason::kBackendFault);
  failed.usage.output_tokens = 3;
  call->OnEvent(failed);
  EXPECT_FALSE(transport_.ending.has_value()) << "a write is in flight";
  WriteDone(call.get());
  ASSERT_TRUE(transport_.ending.has_value());
  EXPECT_EQ(transport_.Sent(1).tokens().deltas(0).text(), "partial");
  EXPECT_EQ(transport_.ending->status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(transport_.UsageTrailer()->output_tokens(), 3);
}

TEST_F(CallTest, AfterACancelNothingIsSentAndTheCallEndsWithTheEngine) {
  auto call = Make<StreamCall>();
  call->OnEvent(Admitted{});
  call->OnEvent(Delta("never read"));
  call->OnCancel();
  WriteDone(call.get(), false);
  call->OnEvent(Delta("nor this"));
  EXPECT_EQ(transport_.sent.size(), 1U);
  EXPECT_FALSE(transport_.ending.has_value()) << "the engine has not ended it yet";
  call->OnEvent(Refused(RefusalReason::kCancelledByClient));
  ASSERT_TRUE(transport_.ending.has_value());
  EXPECT_EQ(transport_.ending->status.error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(CallTest, ACancelWithNothingInFlightWaitsForTheEngineToo) {
  auto call = Make<StreamCall>();
  call->OnCancel();
  EXPECT_FALSE(transport_.ending.has_value());
  call->OnEvent(Refused(RefusalReason::kCancelledByClient));
  EXPECT_TRUE(transport_.ending.has_value());
}

TEST_F(CallTest, ACancelAfterTheEndChangesNothing) {
  auto call = Make<StreamCall>();
  call->OnEvent(Admitted{});
  WriteDone(call.get());
  call->OnEvent(Done(0));
  call->OnCancel();
  EXPECT_TRUE(transport_.ending->status.ok());
}

TEST_F(CallTest, AnAnswerToAUnaryCallHoldsEverything) {
  auto call = Make<UnaryCall>(true);
  call->OnEvent(Admitted{});
  call->OnEvent(Delta("ab", {97, 98}));
  call->OnEvent(TokenDelta{0, "c", {99}, {{99, -0.5F, {}}}});
  call->OnEvent(Finished{0, FinishReason::kStopToken, TokenId{99}});
  EXPECT_FALSE(transport_.ending.has_value());
  Completed completed = Done(3);
  completed.prompt_logprobs.push_back({98, -1.0F, {{97, -0.25F}}});
  call->OnEvent(completed);

  ASSERT_EQ(transport_.sent.size(), 1U);
  const auto response = transport_.Sent<v1::GenerateResponse>(0);
  EXPECT_EQ(response.request_id(), "r1");
  ASSERT_EQ(response.choices_size(), 1);
  EXPECT_EQ(response.choices(0).text(), "abc");
  EXPECT_THAT(response.choices(0).token_ids(), ElementsAre(97, 98, 99));
  EXPECT_EQ(response.choices(0).logprobs_size(), 1);
  EXPECT_EQ(response.choices(0).finish_reason(), v1::FINISH_REASON_STOP_TOKEN);
  EXPECT_EQ(response.choices(0).stop_match().stop_token_id(), 99);
  EXPECT_EQ(response.usage().output_tokens(), 3);
  ASSERT_EQ(response.prompt_logprobs_size(), 1);
  EXPECT_EQ(response.prompt_logprobs(0).top(0).piece(), "a");
  EXPECT_EQ(transport_.UsageTrailer()->output_tokens(), 3);
}

TEST_F(CallTest, AFailedUnaryCallHasNoMessage) {
  auto call = Make<UnaryCall>();
  call->OnEvent(Admitted{});
  call->OnEvent(Delta("lost"));
  call->OnEvent(Refused(RefusalReason::kDeadlineExceeded));
  EXPECT_TRUE(transport_.sent.empty());
  EXPECT_EQ(transport_.ending->status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(transport_.UsageTrailer().has_value());
}

constexpr Duration kTimeout = std::chrono::seconds(10);

TEST_F(CallTest, OnlyAStreamWhoseOldestMessageWaitedTooLongIsAborted) {
  CallRegistry registry;
  auto call = Make<StreamCall>();
  registry.Add(call);
  clock_.Advance(kTimeout * 2);
  registry.AbortStuck(clock_.Now(), kTimeout);
  EXPECT_EQ(transport_.aborts, 0) << "nothing waits";

  call->OnEvent(Admitted{});
  clock_.Advance(kTimeout - Duration(1));
  call->OnEvent(Delta("later"));
  registry.AbortStuck(clock_.Now(), kTimeout);
  EXPECT_EQ(transport_.aborts, 0);
  WriteDone(call.get());  // now the delta is the oldest
  clock_.Advance(Duration(1));
  registry.AbortStuck(clock_.Now(), kTimeout);
  EXPECT_EQ(transport_.aborts, 0);
  clock_.Advance(kTimeout - Duration(1));
  registry.AbortStuck(clock_.Now(), kTimeout);
  EXPECT_EQ(transport_.aborts, 1);
  registry.AbortStuck(clock_.Now(), kTimeout);
  EXPECT_EQ(transport_.aborts, 1) << "once is enough";
}

TEST_F(CallTest, AReaderThatStallsAtTheLastMessageIsAbortedToo) {
  auto call = Make<StreamCall>();
  call->OnEvent(Admitted{});
  WriteDone(call.get());
  call->OnEvent(Done(0));
  clock_.Advance(kTimeout);
  EXPECT_TRUE(call->AborterIfStuck(clock_.Now(), kTimeout));
}

TEST_F(CallTest, AfterOnDoneTheTransportIsNotTouched) {
  auto call = Make<StreamCall>();
  call->OnEvent(Refused(RefusalReason::kQueueFull));
  call->OnDone();
  clock_.Advance(kTimeout);
  EXPECT_FALSE(call->AborterIfStuck(clock_.Now(), kTimeout));
}

TEST_F(CallTest, TheRegistryWaitsForTheLastCall) {
  CallRegistry registry;
  auto call = Make<StreamCall>();
  registry.Add(call);
  registry.WaitUntilEmpty(Duration::zero());
  std::thread closer([&] { registry.Remove(call); });
  registry.WaitUntilEmpty(std::chrono::minutes(1));
  closer.join();
}

// What the metrics hear of a call's end.

TEST_F(CallTest, AnEndIsToldOnceJustBeforeTheStatus) {
  std::size_t told_at_finish = 0;
  transport_.on_finish = [&] { told_at_finish = metrics_.told().ends.size(); };
  auto call = Make<StreamCall>();
  call->OnEvent(Admitted{});
  call->OnEvent(Finished{1, FinishReason::kStopToken, {}});
  call->OnEvent(Finished{0, FinishReason::kLength, {}});
  clock_.Advance(std::chrono::seconds(3));
  Completed completed = Done(7);
  completed.usage.prompt_tokens = 5;
  completed.met_deadline = true;
  call->OnEvent(completed);
  EXPECT_TRUE(metrics_.told().ends.empty()) << "a write is in flight";
  while (!transport_.ending) WriteDone(call.get());
  EXPECT_EQ(told_at_finish, 1U);
  call->OnCancel();
  call->OnDone();
  const auto ends = metrics_.told().ends;
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends[0].request_id, "r1");
  EXPECT_EQ(ends[0].trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(ends[0].told.service_class, 1);
  EXPECT_EQ(ends[0].told.tenant, 2);
  EXPECT_EQ(ends[0].told.choices, 3);
  EXPECT_EQ(ends[0].finish(), FinishReason::kLength) << "the choice that ended last";
  EXPECT_TRUE(ends[0].told.started);
  EXPECT_EQ(ends[0].told.usage.output_tokens, 7);
  EXPECT_EQ(ends[0].told.total_time, std::chrono::seconds(3));
  EXPECT_EQ(ends[0].told.met_deadline, true);
}

TEST_F(CallTest, ARefusalIsToldAsOneThatNeverStarted) {
  auto call = Make<UnaryCall>();
  call->OnEvent(Refused(RefusalReason::kQueueFull));
  const auto ends = metrics_.told().ends;
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends[0].refusal(), RefusalReason::kQueueFull);
  EXPECT_FALSE(ends[0].told.started);
  EXPECT_EQ(ends[0].told.met_deadline, std::nullopt);
}

TEST_F(CallTest, AFailureIsToldWithItsUsage) {
  auto call = Make<UnaryCall>();
  call->OnEvent(Admitted{});
  Failed failed = Refused(RefusalReason::kBackendFault);
  failed.usage.kv_block_seconds = 2.5;
  failed.met_deadline = false;
  call->OnEvent(failed);
  const auto ends = metrics_.told().ends;
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends[0].refusal(), RefusalReason::kBackendFault);
  EXPECT_TRUE(ends[0].told.started);
  EXPECT_EQ(ends[0].told.usage.kv_block_seconds, 2.5);
  EXPECT_EQ(ends[0].told.met_deadline, false);
}

TEST_F(CallTest, AReaderThatWasAbortedIsToldAsSlowWithWhatItUsed) {
  auto call = Make<StreamCall>();
  call->OnEvent(Admitted{});
  clock_.Advance(kTimeout);
  ASSERT_TRUE(call->AborterIfStuck(clock_.Now(), kTimeout));
  call->OnCancel();
  EXPECT_TRUE(metrics_.told().ends.empty()) << "its request still holds blocks";
  Failed failed = Refused(RefusalReason::kCancelledByClient);
  failed.usage.kv_block_seconds = 4.0;
  call->OnEvent(failed);
  WriteDone(call.get(), false);
  const auto ends = metrics_.told().ends;
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends[0].refusal(), RefusalReason::kSlowReader);
  EXPECT_EQ(ends[0].told.usage.kv_block_seconds, 4.0);
  EXPECT_EQ(transport_.ending->status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(CallTest, AnAnswerThatWasFinishedStaysGoodEvenIfItsLastMessageIsNotRead) {
  auto call = Make<UnaryCall>();
  call->OnEvent(Admitted{});
  call->OnEvent(Finished{0, FinishReason::kLength, {}});
  call->OnEvent(Done(1));
  clock_.Advance(kTimeout);
  EXPECT_TRUE(call->AborterIfStuck(clock_.Now(), kTimeout));
  ASSERT_EQ(metrics_.told().ends.size(), 1U);
  EXPECT_EQ(metrics_.told().ends[0].finish(), FinishReason::kLength);
}

// Writes end on another thread than the one that brings events, as with gRPC.
class ThreadedTransport final : public CallTransport {
 public:
  void Write(const google::protobuf::Message& message) override {
    const std::lock_guard lock(mutex_);
    ASSERT_FALSE(writing_ || finished_);
    Keep(message);
    writing_ = true;
    changed_.notify_all();
  }
  void Finish(const google::protobuf::Message* last, const CallEnding&) override {
    const std::lock_guard lock(mutex_);
    ASSERT_FALSE(writing_ || finished_);
    if (last != nullptr) Keep(*last);
    finished_ = true;
    changed_.notify_all();
  }
  std::function<void()> SlowReaderAborter() override { return nullptr; }

  void RunUntilFinished(StreamCall* call) {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return writing_ || finished_; });
      if (finished_) return;
      writing_ = false;
      lock.unlock();
      call->OnWriteDone(true);
      lock.lock();
    }
  }
  std::string text() const { return text_; }

 private:
  void Keep(const google::protobuf::Message& message) {
    const auto& response = dynamic_cast<const v1::GenerateStreamResponse&>(message);
    for (const v1::TokenDelta& delta : response.tokens().deltas()) text_ += delta.text();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool writing_ = false;
  bool finished_ = false;
  std::string text_;
};

TEST_F(CallTest, NoTextIsLostWhenWritesEndOnAnotherThread) {
  ThreadedTransport transport;
  const auto call = std::make_shared<StreamCall>(&clock_, &metrics_, EventEncoder(&tokenizer_, OutputSpec(), "batch"),
                                                 CallFacts{.names = {.request_id = "r1"}}, &transport);
  std::thread writer([&] { transport.RunUntilFinished(call.get()); });
  std::string expected;
  call->OnEvent(Admitted{});
  for (int i = 0; i < 5000; ++i) {
    const std::string text(1, static_cast<char>('a' + i % 26));
    expected += text;
    call->OnEvent(Delta(text));
  }
  call->OnEvent(Done(5000));
  writer.join();
  EXPECT_EQ(transport.text(), expected);
}

}  // namespace
}  // namespace berth
