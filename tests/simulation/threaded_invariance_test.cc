// A request's tokens and log-probabilities are the same bits whatever runs beside it, however the engine cuts, shares,
// parks, swaps and resumes it, and on however many threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "admission/demand.h"
#include "cli/collect.h"
#include "draw.h"
#include "engine/engine.h"
#include "fakes/test_data.h"
#include "model/model.h"
#include "runner/cpu/cpu_backend.h"
#include "tokenizer/tokenizer.h"

namespace berth {
namespace {

using cli::Answer;
using cli::RunInEngine;
using simulation::Draw;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kSchedules = 4;
#else
constexpr std::uint64_t kSchedules = 24;
#endif

// What the schedules have really put the requests through.
struct Trials {
  std::atomic<std::int64_t> shared_steps = 0;  // of several sequences
  std::atomic<std::int64_t> mixed_steps = 0;   // prompts beside decoding
  std::atomic<std::int64_t> swapped_blocks = 0;
  std::atomic<std::int64_t> preemptions = 0;
  std::atomic<std::int64_t> recomputed_tokens = 0;
  std::atomic<std::int64_t> cached_tokens = 0;

  bool complete() const {
    return shared_steps > 0 && mixed_steps > 0 && swapped_blocks > 0 && preemptions > 0 && recomputed_tokens > 0 &&
           cached_tokens > 0;
  }
};

void Tell(const Trials& trials) {
  std::printf(
      "%lld shared steps, %lld mixed, %lld blocks swapped in, %lld preemptions, %lld tokens recomputed, %lld cached\n",
      static_cast<long long>(trials.shared_steps), static_cast<long long>(trials.mixed_steps),
      static_cast<long long>(trials.swapped_blocks), static_cast<long long>(trials.preemptions),
      static_cast<long long>(trials.recomputed_tokens), static_cast<long long>(trials.cached_tokens));
}

class CountingBackend final : public Backend {
 public:
  CountingBackend(std::unique_ptr<Backend> inner, Trials* trials) : inner_(std::move(inner)), trials_(trials) {}

  const BackendInfo& info() const override { return inner_->info(); }
  absl::Status Submit(const StepPlan& plan) override {
    const auto is_prefill = [](const StepRow& row) { return row.num_tokens > 1; };
    const auto prefills = std::ranges::count_if(plan.rows, is_prefill);
    trials_->shared_steps += plan.rows.size() > 1 ? 1 : 0;
    trials_->mixed_steps += prefills > 0 && prefills < std::ssize(plan.rows) ? 1 : 0;
    trials_->swapped_blocks += std::ssize(plan.swap_in);
    return inner_->Submit(plan);
  }
  void NotifyWhenDone(std::function<void()> notify) override { inner_->NotifyWhenDone(std::move(notify)); }
  absl::Status Await(StepResult* result) override { return inner_->Await(result); }

 private:
  const std::unique_ptr<Backend> inner_;
  Trials* const trials_;
};

struct ModelUnderTest {
  std::unique_ptr<Model> model;
  std::unique_ptr<Tokenizer> tokenizer;
  std::int32_t context_tokens = 0;

  static ModelUnderTest Open(const std::string& path, std::int32_t context_tokens) {
    ModelUnderTest opened;
    opened.model = *Model::Open(path);
    opened.model->config.context_tokens = context_tokens;
    opened.tokenizer = *Tokenizer::FromGguf(*opened.model->file);
    opened.context_tokens = context_tokens;
    return opened;
  }
};

// Requests, and the server that is to run them together.
struct Schedule {
  std::vector<TokenizedRequest> requests;
  std::vector<std::int64_t> starts_at;   // tokens that all have put out by then
  std::vector<std::int64_t> cancels_at;  // tokens of its own; 0 = never
  CpuBackendOptions backend;
  Policy policy;
};

struct Sizes {
  std::int64_t requests = 12;
  std::int64_t longest_common = 40;
  std::int64_t longest_own = 20;
  std::int64_t longest_output = 40;
};

TokenizedRequest MakeRequest(const std::vector<std::vector<TokenId>>& families, const Sizes& sizes,
                             std::int32_t vocab_size, Draw* draw) {
  TokenizedRequest request;
  const std::vector<TokenId>& family = families[static_cast<std::size_t>(draw->Between(0, std::ssize(families) - 1))];
  request.prompt.assign(family.begin(), family.begin() + draw->Between(0, std::ssize(family)));
  for (std::int64_t i = draw->Between(1, sizes.longest_own); i > 0; --i) {
    request.prompt.push_back(static_cast<TokenId>(draw->Between(3, vocab_size - 1)));
  }
  GenerateSpec& spec = request.spec;
  spec.sampling.temperature = draw->Chance(0.5) ? 0.0F : 0.9F;
  spec.sampling.seed = static_cast<std::uint64_t>(draw->Between(0, 1000));
  spec.sampling.n = static_cast<std::int32_t>(draw->OneOf({1, 1, 1, 2, 3}));
  spec.stopping.max_output_tokens = static_cast<std::int32_t>(draw->Between(2, sizes.longest_output));
  spec.stopping.ignore_eos = true;
  spec.output.logprobs = 2;
  spec.output.prompt_logprobs = draw->Chance(0.1) ? 1 : kNoLogprobs;
  return request;
}

ClassPolicy MakeClass(std::string name, std::int32_t priority, std::int64_t guarantee, std::int64_t borrowing) {
  ClassPolicy c;
  c.name = std::move(name);
  c.priority = priority;
  c.kv_guarantee_blocks = guarantee;
  c.kv_borrowing_limit_blocks = borrowing;
  c.max_preemptions = 1000;  // however often it is parked
  c.max_queued_requests = 1000;
  c.max_wait = std::chrono::hours(1000);
  return c;
}

// Two classes on a pool that is far too small for all: whatever claims its guarantee parks those that borrowed it.
Schedule MakeSchedule(std::uint64_t seed, const Sizes& sizes, const ModelUnderTest& tested) {
  Draw draw(seed);
  Schedule schedule;
  const std::int32_t vocab_size = tested.tokenizer->vocab_size();
  std::vector<std::vector<TokenId>> families(2);
  for (std::vector<TokenId>& family : families) {
    for (std::int64_t i = 0; i < sizes.longest_common; ++i) {
      family.push_back(static_cast<TokenId>(draw.Between(3, vocab_size - 1)));
    }
  }
  const auto block_tokens = static_cast<std::int32_t>(draw.OneOf({4, 8, 16}));
  std::int64_t most_claimed = 1;
  std::int64_t most = 1;
  for (std::int64_t i = 0; i < sizes.requests; ++i) {
    TokenizedRequest request = MakeRequest(families, sizes, vocab_size, &draw);
    GenerateSpec& spec = request.spec;
    spec.request_id = std::to_string(i);
    spec.service_class = i % 3 == 2 ? 0 : 1;
    if (spec.service_class == 1) spec.stopping.max_output_tokens += static_cast<std::int32_t>(sizes.longest_output) / 2;
    const std::int64_t blocks =
        WorstBlocks(std::ssize(request.prompt), spec.stopping.max_output_tokens, spec.sampling.n, block_tokens);
    most = std::max(most, blocks);
    if (spec.service_class == 0) most_claimed = std::max(most_claimed, blocks);
    schedule.starts_at.push_back(i < 2 ? 0 : draw.Between(0, sizes.requests * sizes.longest_output / 2));
    schedule.cancels_at.push_back(draw.Chance(0.1) ? draw.Between(1, 10) : 0);
    schedule.requests.push_back(std::move(request));
  }
  const std::int64_t blocks = std::max(most, most_claimed);
  schedule.backend.threads = static_cast<int>(draw.Between(1, 3));
  schedule.backend.kv_dtype = draw.Chance(0.5) ? KvDtype::kBf16 : KvDtype::kInt8;
  schedule.backend.pool = {.num_blocks = static_cast<std::int32_t>(blocks),
                           .block_tokens = block_tokens,
                           .host_blocks = static_cast<std::int32_t>(draw.OneOf({0, 4 * blocks, 4 * blocks}))};
  Policy& policy = schedule.policy;
  policy.max_running_sequences = 12;
  policy.max_batched_tokens = 12 + draw.OneOf({1, 5, 40, 500});
  policy.classes = {MakeClass("claims", 10, most_claimed, 0), MakeClass("borrows", 1, 0, blocks)};
  policy.classes[0].slot_guarantee = 6;
  policy.classes[1].preemptible = true;
  policy.tenants.emplace_back().name = "only";
  return schedule;
}

EngineOptions OptionsFor(const Policy& policy, const ModelUnderTest& tested) {
  EngineOptions options;
  options.max_context_tokens = tested.context_tokens;
  options.policy = policy;
  options.calibration_steps = 0;
  return options;
}

// One after the other, each as a tenant of its own, so that none finds what another one left in the cache.
std::vector<Answer> RunAlone(const Schedule& schedule, const ModelUnderTest& tested) {
  CpuBackendOptions options = schedule.backend;
  options.threads = 1;
  options.pool.num_blocks = 3 * tested.context_tokens / options.pool.block_tokens;
  options.pool.host_blocks = 0;
  Policy policy;
  policy.classes = {MakeClass("everything", 1, options.pool.num_blocks, 0)};
  policy.classes[0].slot_guarantee = policy.max_running_sequences;
  policy.tenants.resize(schedule.requests.size());
  for (std::size_t i = 0; i < policy.tenants.size(); ++i) policy.tenants[i].name = "tenant " + std::to_string(i);
  const std::unique_ptr<Backend> backend = *MakeCpuBackend(*tested.model, options);
  const SteadyClock clock;
  Engine engine(OptionsFor(policy, tested), backend.get(), tested.tokenizer.get(), &clock);
  std::vector<Answer> answers;
  for (std::size_t i = 0; i < schedule.requests.size(); ++i) {
    TokenizedRequest request = schedule.requests[i];
    request.spec.service_class = 0;
    request.spec.tenant = static_cast<TenantId>(i);
    answers.push_back(std::get<Answer>(RunInEngine(engine, std::move(request), [](const TokenDelta&) {}, {})));
    EXPECT_TRUE(answers.back().completed);
    EXPECT_EQ(answers.back().usage.cached_tokens, 0);
  }
  return answers;
}

// All of them, each when the others have come so far.
class Together {
 public:
  Together(const Schedule& schedule, const ModelUnderTest& tested, Trials* trials)
      : schedule_(schedule),
        trials_(trials),
        backend_(*MakeCpuBackend(*tested.model, schedule.backend), trials),
        engine_(OptionsFor(schedule.policy, tested), &backend_, tested.tokenizer.get(), &clock_),
        answers_(schedule.requests.size()) {}

  std::vector<Answer> Run() {
    {
      std::vector<std::jthread> callers;
      for (std::size_t i = 0; i < answers_.size(); ++i) callers.emplace_back([this, i] { RunOne(i); });
    }
    for (const Answer& answer : answers_) {
      trials_->preemptions += answer.usage.preemptions;
      trials_->recomputed_tokens += answer.usage.recomputed_tokens;
      trials_->cached_tokens += answer.usage.cached_tokens;
    }
    EXPECT_EQ(engine_.load().reserved_blocks(), 0);
    return std::move(answers_);
  }

 private:
  void RunOne(std::size_t i) {
    {
      std::unique_lock lock(mutex_);
      // Or when the others are through, so that this does not wait for ever.
      progress_.wait(lock, [&] { return tokens_ >= schedule_.starts_at[i] || running_ == 0; });
      ++running_;
    }
    std::stop_source stop;
    std::int64_t own_tokens = 0;
    const auto on_delta = [&](const TokenDelta&) {
      if (++own_tokens == schedule_.cancels_at[i]) stop.request_stop();
      const std::lock_guard lock(mutex_);
      ++tokens_;
      progress_.notify_all();
    };
    auto result = RunInEngine(engine_, schedule_.requests[i], on_delta, stop.get_token());
    const std::lock_guard lock(mutex_);
    if (auto* answer = std::get_if<Answer>(&result)) answers_[i] = std::move(*answer);
    --running_;
    progress_.notify_all();
  }

  const Schedule& schedule_;
  Trials* const trials_;
  const SteadyClock clock_;
  CountingBackend backend_;
  Engine engine_;

  std::mutex mutex_;
  std::condition_variable progress_;
  // Guarded by mutex_:
  std::int64_t tokens_ = 0;
  std::int64_t running_ = 0;
  std::vector<Answer> answers_;
};

bool SameBits(const TokenLogprob& a, const TokenLogprob& b) {
  const auto same = [](const TopLogprob& x, const TopLogprob& y) {
    return x.token_id == y.token_id &&
           std::bit_cast<std::uint32_t>(x.logprob) == std::bit_cast<std::uint32_t>(y.logprob);
  };
  return a.token_id == b.token_id &&
         std::bit_cast<std::uint32_t>(a.logprob) == std::bit_cast<std::uint32_t>(b.logprob) &&
         std::ranges::equal(a.top, b.top, same);
}

void ExpectSame(const Answer& alone, const Answer& together, bool cancelled) {
  ASSERT_EQ(together.choices.size(), alone.choices.size());
  EXPECT_TRUE(together.completed || cancelled) << (together.failure ? together.failure->message : "");
  for (std::size_t q = 0; q < alone.choices.size(); ++q) {
    const cli::ChoiceAnswer& want = alone.choices[q];
    const cli::ChoiceAnswer& got = together.choices[q];
    ASSERT_LE(got.output_ids.size(), want.output_ids.size());
    if (together.completed) {
      EXPECT_EQ(got.output_ids.size(), want.output_ids.size());
      EXPECT_EQ(got.text, want.text);
    }
    EXPECT_TRUE(std::equal(got.output_ids.begin(), got.output_ids.end(), want.output_ids.begin())) << "choice " << q;
    EXPECT_TRUE(std::equal(got.logprobs.begin(), got.logprobs.end(), want.logprobs.begin(), SameBits))
        << "choice " << q;
  }
  if (together.completed) {
    EXPECT_TRUE(std::ranges::equal(together.prompt_logprobs, alone.prompt_logprobs, SameBits));
  }
}

void CheckSchedule(std::uint64_t seed, const Sizes& sizes, const ModelUnderTest& tested, Trials* trials) {
  const Schedule schedule = MakeSchedule(seed, sizes, tested);
  const std::vector<Answer> alone = RunAlone(schedule, tested);
  const std::vector<Answer> together = Together(schedule, tested, trials).Run();
  for (std::size_t i = 0; i < alone.size(); ++i) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", request " + std::to_string(i));
    ExpectSame(alone[i], together[i], schedule.cancels_at[i] > 0);
  }
}

TEST(EngineBatchInvariance, TokensAreBitIdenticalToAloneUnderRandomSchedules) {
  BERTH_REQUIRE_SHARED(path, "models/stories260K-f32.gguf");
  const ModelUnderTest tested = ModelUnderTest::Open(path, 128);
  Trials trials;
  std::uint64_t seed = 1;
  for (; seed <= kSchedules; ++seed) CheckSchedule(seed, Sizes(), tested, &trials);
  // Which request meets which is the threads' doing: on until everything was tried.
  for (; seed <= 20 * kSchedules && !trials.complete(); ++seed) CheckSchedule(seed, Sizes(), tested, &trials);
  Tell(trials);
  EXPECT_TRUE(trials.complete());
}

TEST(EngineBatchInvariance, TokensOfTheDefaultModelAreBitIdenticalToAlone) {
  BERTH_REQUIRE_DEFAULT_MODEL(path);
  const ModelUnderTest tested = ModelUnderTest::Open(path, 256);
  Trials trials;
  CheckSchedule(1, {.requests = 6, .longest_common = 30, .longest_own = 10, .longest_output = 8}, tested, &trials);
  Tell(trials);
  EXPECT_GT(trials.shared_steps, 0);
}

}  // namespace
}  // namespace berth
