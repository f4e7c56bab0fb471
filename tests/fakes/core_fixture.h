// The whole core with a backend whose output is a function of the request alone: arrivals, one plan and one step a
// millisecond.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "fakes/core_loop.h"
#include "fakes/memory_backend.h"

namespace berth::test {

inline TimePoint At(std::int64_t ms) { return TimePoint(std::chrono::milliseconds(ms)); }

inline ClassPolicy Class(const std::string& name, std::int64_t guarantee, std::int64_t borrowing, bool preemptible,
                         std::int32_t priority, std::int64_t slots) {
  ClassPolicy c;
  c.name = name;
  c.priority = priority;
  c.kv_guarantee_blocks = guarantee;
  c.kv_borrowing_limit_blocks = borrowing;
  c.preemptible = preemptible;
  c.slot_guarantee = slots;
  return c;
}

inline Policy TwoClasses(std::int64_t batched_tokens = 64) {
  Policy policy;
  policy.classes = {Class("interactive", 40, 0, false, 9, 8), Class("batch", 10, 54, true, 1, 8)};
  policy.tenants.resize(1);
  policy.max_running_sequences = 16;
  policy.max_batched_tokens = batched_tokens;
  return policy;
}

inline std::vector<TokenId> Prompt(std::int64_t length, TokenId first = 1) {
  std::vector<TokenId> prompt(static_cast<std::size_t>(length));
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

inline LoopRequest Ask(ClassId c, std::vector<TokenId> prompt, std::int64_t output, std::int32_t n = 1,
                       std::uint64_t seed = 1) {
  LoopRequest request;
  request.service_class = c;
  request.prompt = std::move(prompt);
  request.max_output_tokens = output;
  request.n = n;
  request.seed = seed;
  return request;
}

// What a request must put out, whatever runs beside it.
inline std::vector<std::vector<TokenId>> Alone(const LoopRequest& request) {
  std::vector<std::vector<TokenId>> output(static_cast<std::size_t>(request.n));
  for (std::int32_t q = 0; q < request.n; ++q) {
    std::vector<TokenId> history = request.prompt;
    for (std::int64_t i = 0; i < request.max_output_tokens; ++i) {
      history.push_back(NextToken(request.seed, q, history));
      output[static_cast<std::size_t>(q)].push_back(history.back());
    }
  }
  return output;
}

class CoreTest : public testing::Test {
 protected:
  void Use(const KvPoolShape& shape, const Policy& policy, std::int32_t max_steps_in_flight = 1) {
    loop.reset();
    backend = std::make_unique<MemoryBackend>(shape, static_cast<std::int32_t>(policy.max_batched_tokens),
                                              max_steps_in_flight);
    loop = std::make_unique<CoreLoop>(shape, policy, backend.get());
    backend->set_references([this](BlockId block) { return loop->pool().references(block); });
  }
  void TearDown() override {
    ASSERT_NE(backend, nullptr);
    EXPECT_EQ(backend->fault(), "");
  }
  RequestKey Arrive(const LoopRequest& request) {
    const RequestKey key = loop->Arrive(request, At(now));
    asked[key] = request;
    return key;
  }
  void Tick() { loop->Tick(At(now++)); }
  void Drain(int limit = 10000) {
    while (loop->live() > 0 && limit-- > 0) Tick();
    EXPECT_EQ(loop->live(), 0);
    EXPECT_EQ(loop->pool().live_blocks() + loop->pool().unspent_blocks(), 0);
    for (const auto& [key, outcome] : loop->ended()) {
      if (outcome.reason.has_value()) continue;
      EXPECT_EQ(outcome.output, Alone(asked[key])) << "request " << key;
    }
  }

  std::unique_ptr<MemoryBackend> backend;
  std::unique_ptr<CoreLoop> loop;
  std::map<RequestKey, LoopRequest> asked;
  std::int64_t now = 0;
};

}  // namespace berth::test
