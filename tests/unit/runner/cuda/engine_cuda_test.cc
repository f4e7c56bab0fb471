// The engine on the CUDA backend: the texts are those of the CPU's float32 arithmetic, whatever happens meanwhile.
#include <atomic>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "../../engine/engine_fixture.h"
#include "cuda_fixture.h"
#include "fakes/test_data.h"
#include "runner/cpu/cpu_backend.h"
#include "tokenizer/tokenizer.h"

namespace berth::test {
namespace {

constexpr ClassId kInteractive = 0;
constexpr ClassId kBatch = 1;
constexpr std::int32_t kMaxStepTokens = 16;  // less than a prompt: it comes in chunks
const KvPoolShape kPool = {.num_blocks = 16, .block_tokens = 16, .host_blocks = 16};

// Counts what a backend is given. Its steps take 1 ms for each token, so that copying what is preempted is always
// predicted to be cheaper than computing it again.
class CountingBackend final : public Backend {
 public:
  explicit CountingBackend(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

  const BackendInfo& info() const override { return backend_->info(); }
  absl::Status Submit(const StepPlan& plan) override {
    swapped_out += static_cast<int>(plan.swap_out.size());
    swapped_in += static_cast<int>(plan.swap_in.size());
    for (const StepRow& row : plan.rows) chunks += row.num_tokens > 1 ? 1 : 0;
    tokens_.push_back(std::ssize(plan.token_ids));
    return backend_->Submit(plan);
  }
  void NotifyWhenDone(std::function<void()> notify) override { backend_->NotifyWhenDone(std::move(notify)); }
  absl::Status Await(StepResult* result) override {
    absl::Status status = backend_->Await(result);
    result->busy = std::chrono::milliseconds(tokens_.front());
    tokens_.pop_front();
    return status;
  }

  std::atomic<int> swapped_out = 0;
  std::atomic<int> swapped_in = 0;
  std::atomic<int> chunks = 0;

 private:
  const std::unique_ptr<Backend> backend_;
  std::deque<std::int64_t> tokens_;  // of the steps in flight
};

Policy TwoClasses() {
  Policy policy = QueuingPolicy(kPool, kMaxStepTokens, kMaxStepTokens, 8);
  policy.classes.resize(2);
  ClassPolicy& interactive = policy.classes[kInteractive];
  interactive.name = "interactive";
  interactive.priority = 100;
  interactive.kv_guarantee_blocks = 12;
  interactive.slot_guarantee = 8;
  ClassPolicy& batch = policy.classes[kBatch];
  batch.name = "batch";
  batch.kv_guarantee_blocks = 4;
  batch.kv_borrowing_limit_blocks = 12;
  batch.slot_guarantee = 4;
  batch.preemptible = true;
  batch.max_queued_requests = 8;
  batch.max_wait = std::chrono::hours(1000);
  return policy;
}

class EngineOnCuda : public CudaBackendTest {
 protected:
  void SetUp() override {
    BERTH_REQUIRE_SHARED(path, "models/stories260K-f32.gguf");
    model_ = OpenModel(path);
    ASSERT_NE(model_, nullptr);
    absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::FromGguf(*model_->file);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
  }

  std::unique_ptr<Backend> MakeCuda() const {
    CudaBackendOptions options;
    options.pool = kPool;
    options.max_step_tokens = kMaxStepTokens;
    options.max_sequences = 16;
    return Make(*model_, options);
  }
  std::unique_ptr<Backend> MakeCpu() const {
    CpuBackendOptions options;
    options.compute = ComputeMode::kFloat32;
    options.kv_dtype = KvDtype::kFloat32;
    options.pool = kPool;
    options.max_step_tokens = kMaxStepTokens;
    return MakeBackend(*model_, options);
  }

  std::unique_ptr<Engine> Start(Backend* backend) const {
    EngineOptions options;
    options.max_context_tokens = backend->info().max_context_tokens;
    options.policy = TwoClasses();
    EXPECT_EQ(ValidatePolicy(options.policy, kPool), absl::OkStatus());
    return std::make_unique<Engine>(options, backend, tokenizer_.get(), &clock_);
  }

  static std::shared_ptr<RecordingSink> Submit(Engine& engine, const std::string& id, ClassId service_class,
                                               std::vector<TokenId> prompt, std::int32_t output_tokens) {
    TokenizedRequest request;
    request.spec.request_id = id;
    request.spec.service_class = service_class;
    request.spec.sampling.temperature = 0.0F;
    request.spec.stopping.max_output_tokens = output_tokens;
    request.prompt = std::move(prompt);
    auto ticket = engine.TakeTicket({.request_id = id, .service_class = service_class, .tenant = 0, .n = 1});
    auto sink = std::make_shared<RecordingSink>();
    EXPECT_TRUE(std::holds_alternative<QueueTicket>(ticket));
    engine.Submit(std::move(std::get<QueueTicket>(ticket)), std::move(request), sink);
    return sink;
  }

  static void WaitForTokens(const RecordingSink& sink, std::size_t tokens) {
    while (sink.token_ids().size() < tokens) std::this_thread::yield();
  }

  std::unique_ptr<Model> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  const SteadyClock clock_;
};

TEST_F(EngineOnCuda, PreemptionSwapsAndPrefixHitsChangeNoText) {
  const std::vector<TokenId> once = {1, 403, 407, 261, 378};
  std::vector<TokenId> story = once;
  std::string once_text;
  std::string empty_text;
  {
    const std::unique_ptr<Backend> cpu = MakeCpu();
    const std::unique_ptr<Engine> engine = Start(cpu.get());
    const auto of_once = Submit(*engine, "once", kBatch, once, 120);
    const auto of_nothing = Submit(*engine, "nothing", kBatch, {1}, 120);
    once_text = of_once->WaitForEnd().text();
    empty_text = of_nothing->WaitForEnd().text();
    const std::vector<TokenId> ids = of_once->token_ids();
    story.insert(story.end(), ids.begin(), ids.begin() + 40);
  }
  ASSERT_FALSE(once_text.empty());

  CountingBackend cuda(MakeCuda());
  const std::unique_ptr<Engine> engine = Start(&cuda);
  const auto first = Submit(*engine, "once", kBatch, once, 120);
  const auto second = Submit(*engine, "nothing", kBatch, {1}, 120);
  WaitForTokens(*first, 40);
  WaitForTokens(*second, 40);
  // All that is guaranteed to them: both others give way, and some of what they had computed is written over. The third
  // goes on with what the first begins with.
  const auto third = Submit(*engine, "goes on", kInteractive, story, 60);
  const auto fourth = Submit(*engine, "another", kInteractive, SomeIds(60, 512), 20);
  const std::string third_text = third->WaitForEnd().text();
  EXPECT_EQ(fourth->WaitForEnd().finish_reason(), FinishReason::kLength);
  EXPECT_EQ(first->WaitForEnd().text(), once_text);
  EXPECT_EQ(second->WaitForEnd().text(), empty_text);
  EXPECT_NE(once_text.find(third_text), std::string::npos) << third_text;
  EXPECT_GE(first->Only<Completed>()->usage.preemptions, 1);
  EXPECT_GE(second->Only<Completed>()->usage.preemptions, 1);
  EXPECT_GT(cuda.chunks, 2);
  EXPECT_GT(cuda.swapped_out, 0);
  EXPECT_GT(cuda.swapped_in, 0);
  // What the third computed is found again.
  const auto fifth = Submit(*engine, "goes on again", kInteractive, story, 60);
  EXPECT_EQ(fifth->WaitForEnd().text(), third_text);
  EXPECT_GT(fifth->Only<Completed>()->usage.cached_tokens, 0);
}

TEST_F(EngineOnCuda, AFaultOfTheDeviceEndsRequestsAndTheServerIsNotServing) {
  const std::unique_ptr<Backend> cuda = MakeCuda();
  const std::unique_ptr<Engine> engine = Start(cuda.get());
  const auto request = Submit(*engine, "faulted", kInteractive, {1}, 100);
  WaitForTokens(*request, 3);
  {
    const std::lock_guard lock(emulation::RuntimeMutex());
    emulation::RecordFault("planted");
  }
  EXPECT_EQ(request->WaitForEnd().failure(), RefusalReason::kBackendFault);
  const auto later = Submit(*engine, "later", kInteractive, {1}, 5);
  EXPECT_EQ(later->WaitForEnd().failure(), RefusalReason::kBackendFault);
  EXPECT_FALSE(engine->serving());
  EXPECT_TRUE(emulation::TakeFault().has_value());
}

}  // namespace
}  // namespace berth::test
