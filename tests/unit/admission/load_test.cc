// What admission says of the load.
#include "admission_fixture.h"
#include "berth/metrics.h"
#include "fakes/allocation_counter.h"

namespace berth {
namespace {

class AdmissionLoad : public AdmissionTest {
 protected:
  LoadSnapshot Load() const {
    LoadSnapshot load;
    admission->FillLoad(&load);
    return load;
  }
  ClassSnapshot Of(ClassId c) const { return Load().classes.at(static_cast<std::size_t>(c)); }
};

TEST_F(AdmissionLoad, CountsWhatRunsAndSumsUpWhatWaits) {
  Use(10, 4, {Class("a", 4, 0, false, 1, 1), Class("b", 2, 8, true, 0, 1)});
  Add(1, 6);
  Plan();
  now = 5.0;
  AdmissionRequest pair = Request(1, 3, 2);
  pair.n = 2;
  pair.prompt_tokens = 3;
  ASSERT_FALSE(Submit(pair).has_value());
  now = 7.0;
  Add(1, 7, 1);
  Add(1, 8, 2);
  Plan();
  const ClassSnapshot b = Of(1);
  EXPECT_EQ(b.running_requests, 1);
  EXPECT_EQ(b.queued_requests, 3);
  EXPECT_EQ(b.parked_requests, 0);
  EXPECT_EQ(b.waiting_since, At(5.0));
  EXPECT_EQ(b.used_blocks, 6);
  EXPECT_EQ(b.used_slots, 1);
  EXPECT_EQ(b.reach_blocks, 10);
  EXPECT_EQ(b.reach_slots, 4);
  EXPECT_EQ(b.waiting_blocks, admission->WorstBlocksOf(pair) + 7 + 8);
  EXPECT_EQ(b.waiting_slots, 2 + 1 + 1);
  EXPECT_EQ(b.wanted_step_tokens, 3 + 1 + 1);
  const LoadSnapshot load = Load();
  EXPECT_EQ(load.used_slots, 1);
  EXPECT_EQ(load.max_slots, 4);
  EXPECT_EQ(load.step_token_budget, policy.max_batched_tokens);
  ASSERT_EQ(load.queued.size(), 2U) << "a pair of class and tenant once";
  for (const TenantQueue& queue : load.queued) EXPECT_EQ(queue.queued_requests, queue.tenant);
  EXPECT_FALSE(Of(0).waiting_since.has_value());
}

TEST_F(AdmissionLoad, WhatIsParkedWaitsSinceThenAndWantsAllItsTokens) {
  Use(10, 4, {Class("a", 6, 0, false, 1, 1), Class("b", 2, 8, true, 0, 1)});
  const RequestKey batch = Add(1, 8);
  Plan();
  now = 3.0;
  view.used[batch] = 5;
  Add(0, 6);
  Plan();
  const ClassSnapshot b = Of(1);
  EXPECT_EQ(b.parked_requests, 1);
  EXPECT_EQ(b.queued_requests, 0);
  EXPECT_EQ(b.waiting_since, At(3.0));
  EXPECT_EQ(b.waiting_blocks, 8);
  EXPECT_EQ(b.wanted_step_tokens, 5);
  EXPECT_TRUE(Load().queued.empty()) << "parked is not queued";
}

TEST_F(AdmissionLoad, NothingIsLeftOfWhatEnded) {
  Use(10, 4, {Class("a", 4, 0, false, 1, 1), Class("b", 2, 8, true, 0, 1)});
  const RequestKey running = Add(1, 8);
  const RequestKey waiting = Add(1, 8);
  Plan();
  Finish(running);
  admission->Cancel(waiting);
  Plan();
  const ClassSnapshot b = Of(1);
  EXPECT_EQ(b.running_requests + b.queued_requests + b.used_blocks + b.used_slots, 0);
  EXPECT_EQ(b.waiting_blocks + b.waiting_slots + b.wanted_step_tokens, 0);
  EXPECT_FALSE(b.waiting_since.has_value());
}

TEST_F(AdmissionLoad, APromptWantsAtMostOneStepWhateverThePolicyMakesOfIt) {
  Use(100, 1, {Class("a", 100, 0, false, 1, 1)});
  Add(0, 50);
  Plan();
  AdmissionRequest request = Request(0, 10);
  request.prompt_tokens = 60;
  ASSERT_FALSE(Submit(request).has_value());
  EXPECT_EQ(Of(0).wanted_step_tokens, 60);
  policy.max_batched_tokens = 20;
  admission->SetPolicy(policy);
  EXPECT_EQ(Of(0).wanted_step_tokens, 20);
  policy.max_batched_tokens = 40;
  admission->SetPolicy(policy);
  admission->Cancel(request.key);
  Plan();
  EXPECT_EQ(Of(0).wanted_step_tokens, 0);
}

TEST_F(AdmissionLoad, AGuaranteeIsUnmetOnlyWhereAPolicyChangeLeftDebt) {
  Use(10, 4, {Class("a", 4, 0, false, 1, 1), Class("b", 2, 8, false, 0, 1)});
  const RequestKey borrower = Add(1, 6);
  Add(1, 6);  // beyond its guarantee: it has no claim
  Plan();
  EXPECT_FALSE(Of(0).guarantee_unmet || Of(1).guarantee_unmet);
  policy.classes[0].kv_guarantee_blocks = 8;
  policy.classes[1].kv_borrowing_limit_blocks = 0;
  admission->SetPolicy(policy);
  Add(0, 5);
  Plan();
  EXPECT_TRUE(Of(0).guarantee_unmet);
  EXPECT_EQ(Of(1).debt_blocks, 4);
  Finish(borrower);
  Plan();
  EXPECT_FALSE(Of(0).guarantee_unmet);
  EXPECT_EQ(Of(0).running_requests, 1);
}

TEST_F(AdmissionLoad, AllocatesNothingWhereThereIsRoom) {
  Use(10, 4, {Class("a", 4, 0, false, 1, 1), Class("b", 2, 8, true, 0, 1)});
  for (TenantId t = 0; t < 3; ++t) Add(1, 8, t);
  Plan();
  LoadSnapshot load;
  admission->FillLoad(&load);
  const std::int64_t before = test::Allocations();
  for (int i = 0; i < 100; ++i) admission->FillLoad(&load);
  EXPECT_EQ(test::Allocations(), before);
}

}  // namespace
}  // namespace berth
