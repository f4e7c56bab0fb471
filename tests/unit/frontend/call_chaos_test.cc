// Calls over a transport that does at random what clients and networks do: the engine, the submissions and the calls
// are the real ones, and gRPC's threads are played.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fakes/fake_backend.h"
#include "fakes/fake_tokenizer.h"
#include "fakes/queuing_policy.h"
#include "frontend/call.h"
#include "frontend/call_registry.h"
#include "frontend/submission.h"

namespace berth {
namespace {

constexpr std::int32_t kContext = 32;  // the whole pool of one request
constexpr std::int64_t kSlots = 4;
const KvPoolShape kPool{.num_blocks = 8, .block_tokens = 4};
const RequestLimits kChaosLimits{.max_stop_strings = 1,
                                 .max_stop_string_bytes = 1,
                                 .max_logit_bias = 1,
                                 .max_logprobs = 1,
                                 .max_request_id_bytes = 128};

// Runs what is posted on two threads, in any order.
class Network {
 public:
  explicit Network(std::uint64_t seed) : random_(seed) {
    for (std::thread& thread : threads_) thread = std::thread([this] { Run(); });
  }
  ~Network() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    posted_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void Post(std::function<void()> reaction) {
    const std::lock_guard lock(mutex_);
    reactions_.push_back(std::move(reaction));
    posted_.notify_one();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      posted_.wait(lock, [this] { return stopped_ || !reactions_.empty(); });
      if (reactions_.empty()) return;
      std::swap(reactions_[random_() % reactions_.size()], reactions_.back());
      const std::function<void()> reaction = std::move(reactions_.back());
      reactions_.pop_back();
      lock.unlock();
      reaction();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable posted_;
  std::vector<std::function<void()>> reactions_;  // guarded by mutex_
  std::minstd_rand random_;                       // guarded by mutex_
  bool stopped_ = false;                          // guarded by mutex_
  std::thread threads_[2];
};

// How a client behaves; none of it happens where the number is negative.
struct Manners {
  int leaves_at_write = -1;   // it is gone while this message is on its way
  int fails_at_write = -1;    // this message and all later ones get through no more
  int stalls_at_write = -1;   // it reads this message never
  bool leaves_early = false;  // right after it has sent its request
};

struct Totals {
  std::atomic<int> finished{0};
  std::atomic<int> done{0};
  std::atomic<int> served{0};
  std::atomic<int> slow{0};
};

// Plays a reactor and the RPC under it. Frees itself with OnDone, as a reactor does: whoever touches it later is seen
// by the sanitizers.
class RandomTransport final : public CallTransport {
 public:
  RandomTransport(const Manners& manners, Network* network, CallRegistry* registry, Totals* totals)
      : manners_(manners), network_(network), registry_(registry), totals_(totals) {}

  void SetCall(std::shared_ptr<Call> call) {
    call_ = std::move(call);
    registry_->Add(call_);
  }
  void SetSubmission(std::shared_ptr<Submission> submission) {
    submission_ = std::move(submission);
    if (manners_.leaves_early) Cancel();
    StartReactions();
  }

  void Write(const google::protobuf::Message& message) override {
    EXPECT_FALSE(writing_.exchange(true)) << "two writes in flight";
    EXPECT_FALSE(finished_) << "a write after Finish";
    EXPECT_LT(message.ByteSizeLong(), 1U << 20);
    Send();
  }

  void Finish(const google::protobuf::Message* last, const CallEnding& ending) override {
    EXPECT_FALSE(writing_) << "Finish over a write";
    EXPECT_FALSE(finished_.exchange(true)) << "Finish twice";
    ++totals_->finished;
    if (ending.status.ok()) ++totals_->served;
    if (last != nullptr) {
      Send();
    } else {
      React([this] { Done(); });
    }
  }

  std::function<void()> SlowReaderAborter() override {
    // As the reactor's, it may run when the transport is gone.
    return [stuck = stuck_, totals = totals_, network = network_] {
      ++totals->slow;
      network->Post([stuck] { stuck->Abort(); });
    };
  }

 private:
  // A message that nobody reads, until the call is aborted.
  class Stuck {
   public:
    void Hold(std::function<void()> release) {
      std::unique_lock lock(mutex_);
      if (!aborted_) {
        release_ = std::move(release);
        return;
      }
      lock.unlock();
      release();
    }
    void Abort() {
      std::function<void()> release;
      {
        const std::lock_guard lock(mutex_);
        aborted_ = true;
        release = std::exchange(release_, nullptr);
      }
      if (release) release();
    }

   private:
    std::mutex mutex_;
    bool aborted_ = false;
    std::function<void()> release_;
  };

  // gRPC runs no reaction before the handler has returned. The transport may be gone once one is posted.
  void React(std::function<void()> reaction) {
    {
      const std::lock_guard lock(mutex_);
      if (!started_) {
        waiting_.push_back(std::move(reaction));
        return;
      }
    }
    network_->Post(std::move(reaction));
  }
  void StartReactions() {
    Network* const network = network_;
    std::vector<std::function<void()>> waiting;
    {
      const std::lock_guard lock(mutex_);
      started_ = true;
      waiting.swap(waiting_);
    }
    for (std::function<void()>& reaction : waiting) network->Post(std::move(reaction));
  }

  // One message, the last where Finish was called.
  void Send() {
    const int number = writes_++;
    if (number == manners_.leaves_at_write) Cancel();
    if (manners_.fails_at_write >= 0 && number >= manners_.fails_at_write) failed_ = true;
    if (number == manners_.stalls_at_write) {
      React([this] {
        stuck_->Hold([this] {
          failed_ = true;
          Sent();
        });
      });
    } else {
      React([this] { Sent(); });
    }
  }
  void Sent() {
    if (finished_) return Done();
    const bool ok = !failed_;
    writing_ = false;
    if (!ok) submission_->Cancel();
    // Keeps the call: the write that this starts may be the last, and be over before OnWriteDone has returned.
    const std::shared_ptr<Call> call = call_;
    call->OnWriteDone(ok);
  }
  void Cancel() {
    // OnDone waits for a reaction that runs.
    ++open_reactions_;
    React([this] {
      failed_ = true;
      call_->OnCancel();
      submission_->Cancel();
      stuck_->Abort();  // nothing is stuck in a call that is over
      LetGo();
    });
  }
  void Done() { LetGo(); }
  // The last of the reactions is OnDone.
  void LetGo() {
    if (--open_reactions_ > 0) return;
    call_->OnDone();
    ++totals_->done;
    registry_->Remove(call_);
    delete this;
  }

  const Manners manners_;
  Network* const network_;
  CallRegistry* const registry_;
  Totals* const totals_;
  const std::shared_ptr<Stuck> stuck_ = std::make_shared<Stuck>();
  std::shared_ptr<Call> call_;
  std::shared_ptr<Submission> submission_;
  std::atomic<int> open_reactions_{1};  // the RPC itself, and a cancel on its way
  std::atomic<int> writes_{0};
  std::atomic<bool> writing_{false};
  std::atomic<bool> finished_{false};
  std::atomic<bool> failed_{false};

  std::mutex mutex_;
  bool started_ = false;                        // guarded by mutex_
  std::vector<std::function<void()>> waiting_;  // guarded by mutex_
};

class CallChaosTest : public testing::Test {
 protected:
  static BackendInfo Backend(std::int32_t vocab_size) {
    return {.name = "fake",
            .pool = kPool,
            .kv_dtype = KvDtype::kBf16,
            .vocab_size = vocab_size,
            .max_context_tokens = kContext,
            .max_step_tokens = 16};
  }
  static Policy PolicyWith(std::int64_t slots) { return test::QueuingPolicy(kPool, slots, 16, 6); }

  GenerateSpec RandomSpec(std::minstd_rand* random, const std::string& id) const {
    const auto one_in = [&](unsigned n) { return (*random)() % n == 0; };
    GenerateSpec spec;
    spec.request_id = one_in(20) ? "twin" : id;
    spec.arrival = clock_.Now();
    spec.prompt_text.assign(1 + (*random)() % 12, 'a');
    spec.stopping.max_output_tokens = one_in(20) ? 1000 : static_cast<std::int32_t>(1 + (*random)() % 20);
    spec.stopping.ignore_eos = true;
    if (one_in(10)) {
      spec.deadline = spec.arrival + std::chrono::microseconds((*random)() % 2000);
      spec.partial_at_deadline = one_in(2);
    }
    return spec;
  }

  static Manners RandomManners(std::minstd_rand* random) {
    const auto some_write = [&] { return static_cast<int>((*random)() % 6); };
    Manners manners;
    switch ((*random)() % 8) {
      case 0:
        manners.leaves_at_write = some_write();
        break;
      case 1:
        manners.fails_at_write = some_write();
        break;
      case 2:
        manners.stalls_at_write = some_write();
        break;
      case 3:
        manners.leaves_early = true;
        break;
      default:
        break;  // it reads to the end
    }
    return manners;
  }

  template <typename CallType>
  void Start(GenerateSpec spec, const Manners& manners, bool is_retry = false) {
    auto* transport = new RandomTransport(manners, &network_, &registry_, &totals_);
    auto call = std::make_shared<CallType>(&clock_, NoMetrics(), EventEncoder(&tokenizer_, spec.output, "only"),
                                           CallFacts{.names = {.request_id = spec.request_id}, .arrival = spec.arrival},
                                           transport);
    transport->SetCall(call);
    transport->SetSubmission(Submission::Start(parts_, std::move(spec), is_retry, call));
  }

  void StartMany(int calls, unsigned seed) {
    std::minstd_rand random(seed + 1);
    for (int i = 0; i < calls; ++i) {
      GenerateSpec spec = RandomSpec(&random, std::to_string(seed) + "-" + std::to_string(i));
      const Manners manners = RandomManners(&random);
      const bool is_retry = random() % 4 == 0;  // then it replaces an earlier twin
      random() % 4 == 0 ? Start<UnaryCall>(std::move(spec), manners, is_retry)
                        : Start<StreamCall>(std::move(spec), manners, is_retry);
      if (random() % 4 == 0) std::this_thread::yield();
    }
  }

  const SteadyClock clock_;
  test::FakeTokenizer tokenizer_;
  test::FakeBackend backend_{Backend(tokenizer_.vocab_size())};
  Engine engine_{{.max_context_tokens = kContext, .policy = PolicyWith(kSlots), .calibration_steps = 0},
                 &backend_,
                 &tokenizer_,
                 &clock_};
  Codec codec_{kChaosLimits, "tiny", kContext, &tokenizer_};
  TokenizerPool pool_{2, 4};
  FrontendParts parts_{&engine_, &tokenizer_, &clock_, &codec_, &pool_};
  CallRegistry registry_;
  Totals totals_;
  Network network_{7};
};

// The server's housekeeping, and an operator who cannot make up their mind.
class Housekeeper {
 public:
  Housekeeper(CallRegistry* registry, Engine* engine, std::function<Policy(std::int64_t slots)> policy)
      : thread_([=, this] {
          while (!stopped_) {
            registry->AbortStuck(SteadyClock().Now(), std::chrono::milliseconds(2));
            engine->SetPolicy(policy(++turns_ % 2 == 0 ? kSlots : 1));
            std::this_thread::yield();
          }
        }) {}
  ~Housekeeper() {
    stopped_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stopped_{false};
  int turns_ = 0;  // the thread's
  std::thread thread_;
};

TEST_F(CallChaosTest, EveryCallFinishesOnceAndEveryBlockComesBack) {
  constexpr int kClients = 3;
  constexpr int kCallsEach = 400;
  backend_.FailAwait(500);
  {
    const Housekeeper housekeeper(&registry_, &engine_, PolicyWith);
    std::vector<std::thread> clients;
    for (unsigned i = 0; i < kClients; ++i) clients.emplace_back([this, i] { StartMany(kCallsEach, i); });
    for (std::thread& client : clients) client.join();
    registry_.WaitUntilEmpty(std::chrono::minutes(1));
  }
  EXPECT_EQ(totals_.finished, kClients * kCallsEach);
  EXPECT_EQ(totals_.done, kClients * kCallsEach);
  EXPECT_GT(totals_.served, 0);
  EXPECT_GT(totals_.slow, 0);

  const int served = totals_.served;
  GenerateSpec whole;
  whole.request_id = "the whole pool";
  whole.prompt_text = "a";
  whole.stopping.max_output_tokens = kContext - 1;
  Start<StreamCall>(std::move(whole), Manners());
  registry_.WaitUntilEmpty(std::chrono::minutes(1));
  EXPECT_EQ(totals_.served, served + 1);
}

TEST_F(CallChaosTest, ADrainInTheMiddleEndsEveryCallOnce) {
  constexpr int kCalls = 400;
  const Housekeeper housekeeper(&registry_, &engine_, PolicyWith);
  std::thread client([this] { StartMany(kCalls, 11); });
  while (totals_.finished < kCalls / 4) std::this_thread::yield();
  engine_.Shutdown(std::chrono::milliseconds(1));
  client.join();
  registry_.WaitUntilEmpty(std::chrono::minutes(1));
  EXPECT_EQ(totals_.finished, kCalls);
  EXPECT_EQ(totals_.done, kCalls);
}

}  // namespace
}  // namespace berth
