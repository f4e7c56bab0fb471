// Whatever callers, readers and the backend do: every call is told to the metrics once, as what its caller was told.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fakes/fake_backend.h"
#include "fakes/fake_clock.h"
#include "fakes/fake_tokenizer.h"
#include "fakes/queuing_policy.h"
#include "fakes/recording_metrics.h"
#include "frontend/call_registry.h"
#include "frontend/submission.h"

namespace berth {
namespace {

constexpr int kCallers = 3;
constexpr int kCallsPerCaller = 150;
constexpr std::int32_t kCountedContext = 64;
constexpr Duration kWriteTimeout = std::chrono::seconds(10);

const RequestLimits kCountedLimits{.max_stop_strings = 4,
                                   .max_stop_string_bytes = 16,
                                   .max_logit_bias = 1,
                                   .max_logprobs = 1,
                                   .max_request_id_bytes = 128};

// A peer that reads, or stalls and is aborted; its writes end on whichever thread moves it on.
class Peer final : public CallTransport {
 public:
  void Write(const google::protobuf::Message&) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(writing_ || status_.has_value());
    writing_ = true;
  }
  void Finish(const google::protobuf::Message*, const CallEnding& ending) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(writing_ || status_.has_value());
    status_ = ending.status.error_code();
  }
  std::function<void()> SlowReaderAborter() override {
    return [aborted = aborted_] { *aborted = true; };
  }

  // As gRPC would: ends a write if there is one, and tells of an abort. True once the call is over.
  bool Move(Call* call, Submission* submission, bool reads) {
    bool write_ended = false;
    bool cancel = false;
    bool good = false;
    {
      const std::lock_guard lock(mutex_);
      if (status_.has_value()) return true;
      cancel = *aborted_ && !std::exchange(gone_, gone_ || *aborted_);
      good = !gone_;
      write_ended = (reads || !good) && std::exchange(writing_, false);
    }
    if (cancel) {
      call->OnCancel();
      if (submission != nullptr) submission->Cancel();
    }
    if (write_ended) call->OnWriteDone(good);
    return false;
  }
  void HangUp(Call* call, Submission* submission) {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(gone_, true)) return;
    }
    call->OnCancel();
    if (submission != nullptr) submission->Cancel();
  }
  grpc::StatusCode status() const { return status_.value(); }

 private:
  std::mutex mutex_;
  const std::shared_ptr<std::atomic<bool>> aborted_ = std::make_shared<std::atomic<bool>>(false);
  bool writing_ = false;
  bool gone_ = false;
  std::optional<grpc::StatusCode> status_;
};

class CountedOnce : public testing::Test {
 protected:
  static BackendInfo Info(std::int32_t vocab_size) {
    return {.name = "fake",
            .pool = {.num_blocks = 24, .block_tokens = 4},
            .kv_dtype = KvDtype::kBf16,
            .vocab_size = vocab_size,
            .max_context_tokens = kCountedContext,
            .max_step_tokens = 16};
  }
  EngineOptions Options() {
    EngineOptions options;
    options.max_context_tokens = kCountedContext;
    options.policy = test::QueuingPolicy(backend_.info().pool, 4, 16, 6);
    options.calibration_steps = 0;
    options.probe_interval = std::chrono::milliseconds(1);
    return options;
  }

  struct Made {
    std::string id;
    std::shared_ptr<Call> call;
    std::unique_ptr<Peer> peer = std::make_unique<Peer>();
    std::shared_ptr<Submission> submission;
    bool reads = true;
    int hang_up_after = -1;  // moves; -1 = never
  };

  Made Start(int caller, int number, std::mt19937* random) {
    const auto one_in = [&](unsigned n) { return (*random)() % n == 0; };
    Made made;
    made.id = std::to_string(caller) + "-" + std::to_string(number);
    made.reads = !one_in(8);
    if (one_in(5)) made.hang_up_after = static_cast<int>((*random)() % 30);
    const CallFacts facts{.names = {.request_id = made.id}, .service_class = 0, .tenant = 0, .arrival = clock_.Now()};
    const EventEncoder encoder(&tokenizer_, OutputSpec(), "only");
    if (one_in(3)) {
      made.call = std::make_shared<UnaryCall>(&clock_, &metrics_, encoder, facts, made.peer.get());
    } else {
      made.call = std::make_shared<StreamCall>(&clock_, &metrics_, encoder, facts, made.peer.get());
    }
    registry_.Add(made.call);
    GenerateSpec spec;
    spec.request_id = one_in(20) ? "the same" : made.id;
    spec.prompt_text = std::string(1 + (*random)() % 20, 'p');
    spec.stopping.max_output_tokens =
        one_in(15) ? 10 * kCountedContext : static_cast<std::int32_t>(1 + (*random)() % 30);
    spec.arrival = clock_.Now();
    if (one_in(6)) spec.deadline = clock_.Now() + std::chrono::milliseconds((*random)() % 2000);
    if (one_in(10)) {  // what the codec refuses
      Failed failed;
      failed.refusal.reason = RefusalReason::kUnknownClass;
      made.call->OnEvent(failed);
    } else {
      made.submission = Submission::Start(parts_, std::move(spec), /*is_retry=*/false, made.call);
    }
    return made;
  }

  void RunToTheEnd(Made* made) {
    for (int moves = 0; !made->peer->Move(made->call.get(), made->submission.get(), made->reads); ++moves) {
      if (moves == made->hang_up_after) made->peer->HangUp(made->call.get(), made->submission.get());
      std::this_thread::yield();
    }
    made->call->OnDone();
    registry_.Remove(made->call);
  }

  test::FakeClock clock_;
  test::FakeTokenizer tokenizer_;
  test::RecordingMetrics metrics_;
  test::FakeBackend backend_{Info(tokenizer_.vocab_size()), test::HashedLetter, &clock_, std::chrono::milliseconds(20)};
  std::unique_ptr<Engine> engine_ = std::make_unique<Engine>(Options(), &backend_, &tokenizer_, &clock_);
  Codec codec_{kCountedLimits, "tiny", kCountedContext, &tokenizer_};
  TokenizerPool pool_{2, 64};
  FrontendParts parts_{.engine = engine_.get(),
                       .tokenizer = &tokenizer_,
                       .clock = &clock_,
                       .codec = &codec_,
                       .pool = &pool_,
                       .metrics = &metrics_};
  CallRegistry registry_;
};

TEST_F(CountedOnce, WhateverCallersReadersAndTheBackendDo) {
  std::array<std::map<std::string, grpc::StatusCode>, kCallers> heard;
  std::atomic<int> working = kCallers;
  std::vector<std::thread> threads;
  for (int caller = 0; caller < kCallers; ++caller) {
    threads.emplace_back([&, caller] {
      std::mt19937 random(static_cast<unsigned>(caller + 1));
      for (int number = 0; number < kCallsPerCaller;) {
        std::vector<Made> together;
        for (; together.size() < 5 && number < kCallsPerCaller; ++number) {
          together.push_back(Start(caller, number, &random));
        }
        for (Made& made : together) {
          RunToTheEnd(&made);
          heard[static_cast<std::size_t>(caller)][made.id] = made.peer->status();
        }
      }
      --working;
    });
  }
  // The housekeeper, time that passes where nothing runs, and a backend that fails now and then.
  for (int round = 0; working > 0; ++round) {
    registry_.AbortStuck(clock_.Now(), kWriteTimeout);
    clock_.Advance(std::chrono::milliseconds(100));
    if (round % 50 == 0) backend_.FailAwait(backend_.steps() + 3);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  for (std::thread& thread : threads) thread.join();
  engine_->Shutdown(Duration::zero());
  pool_.Stop();

  std::map<std::string, int> told;
  std::map<RefusalReason, int> refusals;
  for (const auto& end : metrics_.told().ends) {
    ++told[end.request_id];
    const auto caller = static_cast<std::size_t>(end.request_id[0] - '0');
    const auto refusal = end.refusal();
    if (refusal.has_value()) ++refusals[*refusal];
    EXPECT_EQ(heard[caller].at(end.request_id), refusal.has_value() ? StatusCodeOf(*refusal) : grpc::StatusCode::OK);
  }
  EXPECT_EQ(told.size(), static_cast<std::size_t>(kCallers * kCallsPerCaller));
  for (const auto& [id, times] : told) EXPECT_EQ(times, 1) << id;
  for (const RefusalReason reason : {RefusalReason::kUnknownClass, RefusalReason::kCancelledByClient,
                                     RefusalReason::kRequestTooLarge, RefusalReason::kSlowReader}) {
    EXPECT_GT(refusals[reason], 0) << "the schedule has none of " << RefusalReasonName(reason);
  }
}

}  // namespace
}  // namespace berth
