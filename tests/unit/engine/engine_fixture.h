// An engine on a fake backend, and a sink that remembers.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "admission/policy_check.h"
#include "base/check.h"
#include "engine/engine.h"
#include "fakes/fake_backend.h"
#include "fakes/fake_clock.h"
#include "fakes/fake_tokenizer.h"
#include "fakes/queuing_policy.h"
#include "fakes/recording_metrics.h"

namespace berth::test {

// Crashes if the events come in an order that berth/event.h rules out.
class RecordingSink final : public EventSink {
 public:
  void OnEvent(StreamEvent event) override {
    {
      const std::lock_guard lock(mutex_);
      BERTH_CHECK_MSG(!ended_, "an event after the last one");
      const bool admitted = std::holds_alternative<Admitted>(event);
      BERTH_CHECK_MSG(!admitted || events_.empty(), "Admitted comes first");
      const bool is_failed = std::holds_alternative<Failed>(event);
      BERTH_CHECK_MSG(admitted || is_failed || !events_.empty(), "only Failed may come without Admitted");
      const bool is_finished = !events_.empty() && std::holds_alternative<Finished>(events_.back());
      const bool is_completed = std::holds_alternative<Completed>(event);
      BERTH_CHECK_MSG(is_finished || !is_completed, "Completed comes right after a Finished");
      CheckChoice(event);
      ended_ = is_completed || is_failed;
      events_.push_back(event);
    }
    if (hook_) hook_(event);
    const std::lock_guard lock(mutex_);
    end_reached_ = ended_;
    changed_.notify_all();
  }

  // Called on the output thread for every event.
  void set_hook(std::function<void(const StreamEvent&)> hook) { hook_ = std::move(hook); }

  const RecordingSink& WaitForEnd() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return end_reached_; });
    return *this;
  }

  bool ended() const {
    const std::lock_guard lock(mutex_);
    return end_reached_;
  }
  std::vector<StreamEvent> events() const {
    const std::lock_guard lock(mutex_);
    return events_;
  }

  template <typename Event>
  std::vector<Event> All() const {
    std::vector<Event> all;
    for (const StreamEvent& event : events()) {
      if (const Event* match = std::get_if<Event>(&event)) all.push_back(*match);
    }
    return all;
  }
  template <typename Event>
  std::optional<Event> Only() const {
    const std::vector<Event> all = All<Event>();
    return all.size() == 1 ? std::optional(all.front()) : std::nullopt;
  }

  std::string text(std::int32_t choice = 0) const {
    std::string text;
    for (const TokenDelta& delta : All<TokenDelta>()) {
      if (delta.index == choice) text += delta.text;
    }
    return text;
  }
  std::vector<TokenId> token_ids(std::int32_t choice = 0) const {
    std::vector<TokenId> ids;
    for (const TokenDelta& delta : All<TokenDelta>()) {
      if (delta.index == choice) ids.insert(ids.end(), delta.token_ids.begin(), delta.token_ids.end());
    }
    return ids;
  }
  // How it ended: the finish reason where it completed, the refusal where it failed.
  std::optional<FinishReason> finish_reason() const {
    const auto finished = Only<Finished>();
    return Only<Completed>().has_value() && finished.has_value() ? std::optional(finished->reason) : std::nullopt;
  }
  std::optional<RefusalReason> failure() const {
    const auto failed = Only<Failed>();
    return failed.has_value() ? std::optional(failed->refusal.reason) : std::nullopt;
  }

 private:
  // Nothing comes of a choice that has ended.
  void CheckChoice(const StreamEvent& event) {
    if (const auto* delta = std::get_if<TokenDelta>(&event)) BERTH_CHECK(!finished_.contains(delta->index));
    if (const auto* end = std::get_if<Finished>(&event)) BERTH_CHECK(finished_.insert(end->index).second);
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::set<std::int32_t> finished_;
  std::vector<StreamEvent> events_;
  bool ended_ = false;
  bool end_reached_ = false;
  std::function<void(const StreamEvent&)> hook_;
};

class EngineFixture : public ::testing::Test {
 protected:
  struct Settings {
    std::int32_t num_blocks = 16;
    std::int32_t block_tokens = 4;
    std::int32_t host_blocks = 0;
    std::int32_t max_context_tokens = 64;
    std::int32_t max_step_tokens = 4;
    std::int32_t max_running_sequences = 0;  // 0 = as many as a step has tokens
    std::int32_t max_queued_requests = 8;
    std::int32_t padding_ids = 5;
    NextToken next_token = HashedLetter;
    Duration step_time{};
    std::int32_t calibration_steps = 0;
    Duration probe_interval = std::chrono::hours(1);
    bool broken_at_the_start = false;
    std::function<void(Policy*)> policy = {};  // changes what QueuingPolicy gave
  };

  void StartEngine() { StartEngine(Settings()); }
  void StartEngine(const Settings& settings) {
    BackendInfo info;
    info.name = "fake";
    info.pool = {
        .num_blocks = settings.num_blocks, .block_tokens = settings.block_tokens, .host_blocks = settings.host_blocks};
    info.vocab_size = tokenizer.vocab_size() + settings.padding_ids;
    info.max_context_tokens = settings.max_context_tokens;
    info.max_step_tokens = settings.max_step_tokens;
    info.max_steps_in_flight = max_steps_in_flight;
    EngineOptions options;
    options.max_context_tokens = settings.max_context_tokens;
    options.calibration_steps = settings.calibration_steps;
    options.probe_interval = settings.probe_interval;
    options.metrics = &metrics;
    options.policy = QueuingPolicy(
        info.pool, settings.max_running_sequences > 0 ? settings.max_running_sequences : settings.max_step_tokens,
        settings.max_step_tokens, settings.max_queued_requests);
    if (settings.policy) settings.policy(&options.policy);
    ASSERT_EQ(ValidatePolicy(options.policy, info.pool), absl::OkStatus());
    engine.reset();
    backend = std::make_unique<FakeBackend>(info, settings.next_token, &clock, settings.step_time);
    backend->SetBroken(settings.broken_at_the_start);
    engine = std::make_unique<Engine>(options, backend.get(), &tokenizer, &clock);
  }

  // A step that waits at a closed gate would keep the engine from ending.
  void TearDown() override {
    if (backend != nullptr) backend->OpenGate();
  }

  TokenizedRequest Request(std::string id, std::string_view prompt, std::int32_t max_output_tokens) const {
    TokenizedRequest request;
    request.spec.request_id = std::move(id);
    request.spec.arrival = clock.Now();
    request.spec.sampling.temperature = 0.0F;
    request.spec.stopping.max_output_tokens = max_output_tokens;
    request.prompt = Bytes(prompt);
    return request;
  }

  // Any thread. The refusal of the ticket; what is refused behind it, the sink hears.
  std::optional<Refusal> TrySubmit(TokenizedRequest request, std::shared_ptr<EventSink> sink) {
    const GenerateSpec& spec = request.spec;
    auto ticket = engine->TakeTicket({.request_id = spec.request_id,
                                      .service_class = spec.service_class,
                                      .tenant = spec.tenant,
                                      .n = spec.sampling.n});
    if (auto* refusal = std::get_if<Refusal>(&ticket)) return std::move(*refusal);
    {
      const std::lock_guard lock(ticket_numbers_mutex);
      ticket_numbers[spec.request_id] = std::get<QueueTicket>(ticket).number();
    }
    engine->Submit(std::move(std::get<QueueTicket>(ticket)), std::move(request), std::move(sink));
    return std::nullopt;
  }

  // The last submission of that id. Any thread.
  TicketNumber TicketOf(const std::string& request_id) {
    const std::lock_guard lock(ticket_numbers_mutex);
    return ticket_numbers.at(request_id);
  }

  std::shared_ptr<RecordingSink> Submit(TokenizedRequest request) {
    auto sink = std::make_shared<RecordingSink>();
    const std::optional<Refusal> refusal = TrySubmit(std::move(request), sink);
    EXPECT_FALSE(refusal.has_value()) << refusal->message;
    return sink;
  }

  // Runs it to its end. REQUIRES: the gate is open.
  std::shared_ptr<RecordingSink> Run(TokenizedRequest request) {
    auto sink = Submit(std::move(request));
    sink->WaitForEnd();
    return sink;
  }

  // The refusal of a request whose ticket was granted.
  Refusal Refused(TokenizedRequest request) {
    const auto sink = Run(std::move(request));
    EXPECT_EQ(sink->events().size(), 1U) << "nothing comes before a refusal";
    const auto failed = sink->Only<Failed>();
    return failed.has_value() ? failed->refusal : Refusal();
  }

  // The load changes with the engine's turns: waits for one that is as it must come to be.
  void WaitForLoad(const std::function<bool(const Engine::Load&)>& as_expected) const {
    while (!as_expected(engine->load())) std::this_thread::yield();
  }
  void WaitForQueued(std::int64_t requests) const {
    WaitForLoad([requests](const Engine::Load& load) { return load.queued_requests() == requests; });
  }

  // Nothing is held, and a request that needs the whole pool runs.
  void ExpectFullCapacity() {
    const Engine::Load load = engine->load();
    EXPECT_EQ(load.running_requests(), 0);
    EXPECT_EQ(load.queued_requests(), 0);
    EXPECT_EQ(load.parked_requests(), 0);
    EXPECT_EQ(load.held_blocks, 0);
    EXPECT_EQ(load.reserved_blocks(), 0);
    backend->OpenGate();
    const KvPoolShape pool = backend->info().pool;
    // As many as it takes, each as long as the context lets it be.
    const std::int32_t context_tokens = backend->info().max_context_tokens;
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    std::int64_t reserved_blocks = 0;
    for (std::int32_t left_blocks = pool.num_blocks; left_blocks > 0;) {
      const std::int32_t tokens = std::min(left_blocks * pool.block_tokens, context_tokens);
      sinks.push_back(Submit(Request("fills " + std::to_string(left_blocks), "fills", tokens - 5)));
      left_blocks -= static_cast<std::int32_t>(CeilDiv(tokens, pool.block_tokens));
    }
    for (const auto& sink : sinks) {
      EXPECT_EQ(sink->WaitForEnd().finish_reason(), FinishReason::kLength);
      reserved_blocks += sink->Only<Admitted>()->reserved_blocks;
    }
    EXPECT_EQ(reserved_blocks, pool.num_blocks);
  }

  // With the gate closed and something to do for a while: all the steps are there that the backend takes at once.
  void WaitForStepsAtGate() const { backend->WaitForStepAtGate(max_steps_in_flight); }

  std::int32_t max_steps_in_flight = 1;
  std::mutex ticket_numbers_mutex;
  std::unordered_map<std::string, TicketNumber> ticket_numbers;  // guarded by ticket_numbers_mutex
  FakeClock clock;
  FakeTokenizer tokenizer;
  RecordingMetrics metrics;
  std::unique_ptr<FakeBackend> backend;
  std::unique_ptr<Engine> engine;
};

// The same promises where each step is awaited before the next is submitted, and where one is submitted ahead.
template <typename Fixture = EngineFixture>
class BothWays : public Fixture, public ::testing::WithParamInterface<std::int32_t> {
 protected:
  void SetUp() override { this->max_steps_in_flight = GetParam(); }
};

#define BERTH_BOTH_WAYS(Suite) INSTANTIATE_TEST_SUITE_P(StepsInFlight, Suite, ::testing::Values(1, 2))

}  // namespace berth::test
