// One test per row of the verdict table, and the order of the rows.
#include <gtest/gtest.h>

#include "admission_fixture.h"

namespace berth {
namespace {

class Verdict : public AdmissionTest {
 protected:
  void SetUp() override {
    ClassPolicy interactive = Class("interactive", 10, 0, false, 100, 4);
    interactive.max_sequence_tokens = 50;
    interactive.max_output_tokens = 40;
    interactive.max_queued_requests = 4;
    interactive.max_queued_tokens = 60;
    ClassPolicy batch = Class("batch", 4, 16, true, 1, 0);
    Use(20, 8, {interactive, batch});
  }

  void Expect(const std::optional<Refusal>& refusal, RefusalReason reason, const std::string& limit_name,
              std::int64_t limit, std::int64_t asked) {
    ASSERT_TRUE(refusal.has_value());
    EXPECT_STREQ(RefusalReasonName(refusal->reason), RefusalReasonName(reason));
    EXPECT_EQ(refusal->limit_name, limit_name);
    EXPECT_EQ(refusal->limit, limit);
    EXPECT_EQ(refusal->asked, asked);
    EXPECT_FALSE(refusal->message.empty());
  }
};

TEST_F(Verdict, TooLargeNamesTheClassLimit) {
  Expect(Submit(Request(0, 50)), RefusalReason::kRequestTooLarge, "max_sequence_tokens", 50, 51);
  Expect(Submit(Request(0, 41)), RefusalReason::kRequestTooLarge, "max_output_tokens", 40, 41);
}

// A 10-block ceiling in a pool that is larger: the request could never start, whatever ends.
TEST_F(Verdict, LongerThanTheClassCanEverHoldIsTooLargeAtOnce) {
  Expect(Submit(Request(0, 11)), RefusalReason::kRequestTooLarge, "kv_blocks", 10, 11);
  EXPECT_FALSE(Submit(Request(0, 10)).has_value());
}

TEST_F(Verdict, SlotsBeyondTheClassReachAreTooLarge) {
  ClassPolicy a = Class("a", 10, 10, false, 1, 2);
  ClassPolicy b = Class("b", 0, 0, false, 1, 3);
  Use(20, 6, {a, b});
  AdmissionRequest request = Request(0, 1);
  request.n = 4;  // 2 guaranteed + 1 common
  Expect(Submit(request), RefusalReason::kRequestTooLarge, "running_sequences", 3, 4);
}

TEST_F(Verdict, AQuotaThatCanNeverPassIsTooLarge) {
  policy.tenants[0].max_kv_blocks = 3;
  policy.tenants[1].tokens_per_minute = 600;
  policy.tenants[1].burst_tokens = 5;
  admission->SetPolicy(policy);
  Expect(Submit(Request(0, 4, 0)), RefusalReason::kRequestTooLarge, "max_kv", 3, 4);
  Expect(Submit(Request(0, 6, 1)), RefusalReason::kRequestTooLarge, "burst_tokens", 5, 7);
}

TEST_F(Verdict, TenantConcurrencyCountsQueuedAndRunning) {
  policy.tenants[0].max_concurrent_requests = 2;
  admission->SetPolicy(policy);
  const RequestKey first = Add(0, 1);
  Plan();
  Add(0, 10);
  Plan();
  Expect(Submit(Request(1, 1)), RefusalReason::kTenantQuotaExceeded, "max_concurrent_requests", 2, 3);
  EXPECT_FALSE(Submit(Request(1, 1, 1)).has_value()) << "another tenant";
  Finish(first);
  EXPECT_FALSE(Submit(Request(1, 1)).has_value());
}

TEST_F(Verdict, TokenRateIsChargedByEstimateAndRefundedByUse) {
  policy.tenants[0].tokens_per_minute = 60;
  policy.tenants[0].burst_tokens = 20;
  admission = std::make_unique<Admission>(KvPoolShape{20, 1}, policy);
  const RequestKey first = Add(0, 9);  // 10 of 20
  Plan();
  const auto refusal = Submit(Request(0, 10));  // 11 of 10 + 1 that one second brought: just enough
  EXPECT_FALSE(refusal.has_value());
  const auto over = Submit(Request(0, 4));
  Expect(over, RefusalReason::kTenantQuotaExceeded, "tokens_per_minute", 60, 5);
  EXPECT_EQ(over->retry_after, Seconds(5));
  admission->Finish(first, At(now), 3);  // 7 of its 10 come back
  EXPECT_FALSE(Submit(Request(0, 4)).has_value());
}

// However a request ends: it pays for its prompt and what it drew, and for nothing where it never started.
TEST_F(Verdict, TokenRateGivesBackWhatARequestThatEndsEarlyDidNotUse) {
  policy.tenants[0].tokens_per_minute = 1e-6;
  policy.tenants[0].burst_tokens = 20;
  admission = std::make_unique<Admission>(KvPoolShape{20, 1}, policy);
  const RequestKey running = Add(0, 9);  // 10 of 20
  const RequestKey queued = Add(0, 9);   // and 10 more
  EXPECT_EQ(Started(), Keys{running});
  EXPECT_EQ(Submit(Request(0, 1))->reason, RefusalReason::kTenantQuotaExceeded);
  view.used[running] = 4;
  admission->Cancel(running);
  admission->Cancel(queued);
  Plan();
  const auto over = Submit(Request(1, 16));
  Expect(over, RefusalReason::kTenantQuotaExceeded, "tokens_per_minute", 0, 17);
  EXPECT_FALSE(Submit(Request(1, 10)).has_value()) << "11 of the 16 that are left";
}

TEST_F(Verdict, NothingIsRefundedThatWasNotCharged) {
  admission = std::make_unique<Admission>(KvPoolShape{20, 1}, policy);
  const RequestKey before = Add(0, 9);  // no rate yet
  Plan();
  policy.tenants[0].tokens_per_minute = 1e-6;
  policy.tenants[0].burst_tokens = 20;
  admission->SetPolicy(policy);
  Add(1, 14);  // 15 of 20
  admission->Finish(before, At(now), 1);
  EXPECT_EQ(Submit(Request(1, 6))->reason, RefusalReason::kTenantQuotaExceeded) << "5 are left";
}

// Tokenizing takes its time, and the policy may change meanwhile.
TEST_F(Verdict, APlaceInTheQueueOpensNoClassThatHasBeenShutSince) {
  const auto submit_after = [&](const auto& change) {
    admission = std::make_unique<Admission>(KvPoolShape{20, 1}, policy);
    Policy changed = policy;
    change(&changed);
    admission->SetPolicy(changed);
    const auto refusal = Submit(Request(1, 1));
    return refusal.has_value() ? RefusalReasonName(refusal->reason) : "none";
  };
  EXPECT_STREQ(submit_after([](Policy*) {}), "none");
  EXPECT_STREQ(submit_after([](Policy* p) { p->classes[1].stop = ClassStop::kHold; }), "CLASS_ON_HOLD");
  EXPECT_STREQ(submit_after([](Policy* p) { p->classes[1].stop = ClassStop::kDrain; }), "CLASS_ON_HOLD");
  EXPECT_STREQ(submit_after([](Policy* p) { p->tenants[0].classes = {0}; }), "CLASS_NOT_ALLOWED");
  EXPECT_STREQ(submit_after([this](Policy* p) {
                 p->classes[1] = Class("batch", 0, 0, true, 1, 0);
                 p->classes[1].removed = true;
               }),
               "UNKNOWN_CLASS");
}

TEST_F(Verdict, ARejectClassIsRefusedWhenItCannotStartInTheNextPlan) {
  policy.classes[0].overload = Overload::kReject;
  admission->SetPolicy(policy);
  const RequestKey running = Add(0, 8);
  view.steps[running] = 7;
  EXPECT_EQ(Started(), Keys{running});
  const RequestKey refused = Add(0, 5);
  const RequestKey fits = Add(0, 2);
  const AdmissionPlan& plan = Plan();
  ASSERT_EQ(plan.end.size(), 1U);
  EXPECT_EQ(plan.end[0].key, refused);
  EXPECT_EQ(plan.end[0].refusal.reason, RefusalReason::kKvCapacityExhausted);
  EXPECT_EQ(plan.end[0].refusal.limit_name, "class_kv_blocks");
  EXPECT_EQ(plan.end[0].refusal.limit, 10);
  EXPECT_EQ(plan.end[0].refusal.asked, 5);
  EXPECT_EQ(plan.end[0].refusal.retry_after, Seconds(6)) << "from the release schedule";
  ASSERT_EQ(plan.admit.size(), 1U);
  EXPECT_EQ(plan.admit[0].key, fits);
}

TEST_F(Verdict, WhoIsRefusedForTheClassComesBackWhenItsFirstRequestStarts) {
  const RequestKey running = Add(0, 10);
  view.steps[running] = 5;
  Plan();
  EXPECT_EQ(admission->RetryAfter(0), Seconds(1)) << "nothing waits";
  for (int i = 0; i < 4; ++i) Add(0, 10);
  Plan();
  EXPECT_EQ(admission->RetryAfter(0), Seconds(4));
}

TEST_F(Verdict, TheTokensOfAQueueAreBounded) {
  Add(0, 10);
  Plan();
  for (int i = 0; i < 3; ++i) {
    AdmissionRequest request = Request(0, 10);
    request.prompt_tokens = 1;
    ASSERT_FALSE(Submit(request).has_value());
  }
  policy.classes[0].max_queued_tokens = 40;
  admission->SetPolicy(policy);
  Expect(Submit(Request(0, 10)), RefusalReason::kQueueFull, "queue.max_tokens", 40, 44);
}

TEST_F(Verdict, WaitingTooLongEndsWithATimeout) {
  policy.classes[0].max_wait = Seconds(3);
  admission->SetPolicy(policy);
  Add(0, 10);
  Plan();
  const RequestKey waits = Add(0, 10);  // arrives at 1
  EXPECT_TRUE(Plan().end.empty());
  EXPECT_TRUE(Plan().end.empty());
  EXPECT_TRUE(Plan().end.empty());
  const AdmissionPlan& plan = Plan();  // at 4
  ASSERT_EQ(plan.end.size(), 1U);
  EXPECT_EQ(plan.end[0].key, waits);
  EXPECT_EQ(plan.end[0].refusal.reason, RefusalReason::kQueueTimeout);
}

TEST_F(Verdict, TheLowestPriorityIsShedPossiblyTheNewcomer) {
  for (ClassPolicy& c : policy.classes) c.overload = Overload::kShedLowest;
  policy.max_queued_requests = 2;
  admission->SetPolicy(policy);
  const RequestKey low = Add(1, 20);
  const RequestKey high = Add(0, 10);
  EXPECT_EQ(Submit(Request(1, 1))->reason, RefusalReason::kShed) << "the newest of the lowest priority";
  const RequestKey higher = Add(0, 10);
  const AdmissionPlan& plan = Plan();
  ASSERT_EQ(plan.end.size(), 1U);
  EXPECT_EQ(plan.end[0].key, low);
  EXPECT_EQ(plan.end[0].refusal.reason, RefusalReason::kShed);
  EXPECT_TRUE(admission->Find(high) != nullptr && admission->Find(higher) != nullptr);
}

TEST_F(Verdict, WhatEndsBetweenPlansIsToldAtOnceAndOnlyOnce) {
  for (ClassPolicy& c : policy.classes) c.overload = Overload::kShedLowest;
  policy.max_queued_requests = 1;
  admission->SetPolicy(policy);
  const RequestKey shed = Add(1, 20);
  Add(0, 10);
  const auto ended = admission->TakeEnded();
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].key, shed);
  EXPECT_EQ(ended[0].refusal.reason, RefusalReason::kShed);
  EXPECT_TRUE(admission->TakeEnded().empty());
  EXPECT_TRUE(Plan().end.empty());
}

TEST_F(Verdict, ADeadlineThatCannotBeMetIsRefusedWithPredictedAndRemainingTime) {
  AdmissionRequest running = Request(0, 10);
  view.steps[running.key] = 20;
  EXPECT_FALSE(Submit(running).has_value());
  Plan();
  AdmissionRequest request = Request(0, 10);
  request.deadline = At(now + 10.0);
  request.needed_time = Seconds(2);
  const auto refusal = Submit(request);  // 10 blocks for 20 more steps ahead, of the 10 the class can reach
  Expect(refusal, RefusalReason::kDeadlineInfeasible, "", 0, 0);
  EXPECT_EQ(refusal->remaining, Seconds(10));
  EXPECT_EQ(refusal->predicted, Seconds(22));
  request.key = next_key++;
  request.deadline = At(now + 23.0);
  EXPECT_FALSE(Submit(request).has_value());
}

TEST_F(Verdict, ABadPredictionNeverLocksTheDoor) {
  AdmissionRequest request = Request(0, 10);
  request.deadline = At(now + 1.0);
  request.needed_time = Seconds(1000);
  EXPECT_FALSE(Submit(request).has_value()) << "nothing of its class runs or waits";
  EXPECT_EQ(Started(), Keys{request.key});
}

TEST_F(Verdict, AQueuedRequestEndsWhenItsDeadlineBecomesInfeasible) {
  Add(0, 10);
  Plan();
  AdmissionRequest request = Request(0, 10);
  view.steps[0] = 1;
  admission->SetEndStep(0, admission->plan_number() + 1);
  request.deadline = At(now + 6.0);
  request.needed_time = Seconds(3);
  EXPECT_FALSE(Submit(request).has_value());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Plan().end.empty());
  now += 0.5;
  const AdmissionPlan& plan = Plan();
  ASSERT_EQ(plan.end.size(), 1U);
  EXPECT_EQ(plan.end[0].refusal.reason, RefusalReason::kDeadlineInfeasible);
}

TEST_F(Verdict, ARunningRequestThatCameToNothingSaysWhatItWouldHaveTakenAndHasCost) {
  AdmissionRequest request = Request(0, 10);
  request.deadline = At(20.0);
  EXPECT_FALSE(Submit(request).has_value());
  Plan();
  admission->EndInfeasible(request.key, At(25.0), 33);
  const double judged_at = now;
  const AdmissionPlan& plan = Plan();
  ASSERT_EQ(plan.end.size(), 1U);
  const Refusal& refusal = plan.end[0].refusal;
  EXPECT_EQ(refusal.reason, RefusalReason::kDeadlineInfeasible);
  EXPECT_EQ(refusal.predicted, Seconds(25.0 - judged_at));
  EXPECT_EQ(refusal.remaining, Seconds(20.0 - judged_at));
  EXPECT_EQ(refusal.computed_tokens, 33);
}

TEST_F(Verdict, APassedDeadlineEndsARunningRequestToo) {
  AdmissionRequest request = Request(0, 10);
  request.deadline = At(2.0);
  EXPECT_FALSE(Submit(request).has_value());
  Plan();
  EXPECT_TRUE(Plan().end.empty());
  const AdmissionPlan& plan = Plan();
  ASSERT_EQ(plan.end.size(), 1U);
  EXPECT_EQ(plan.end[0].refusal.reason, RefusalReason::kDeadlineExceeded);
  EXPECT_EQ(admission->ledger().pool_used(), 0);
}

TEST_F(Verdict, CancelEndsAQueuedAndARunningRequestInTheNextPlan) {
  const RequestKey running = Add(0, 10);
  Plan();
  const RequestKey queued = Add(0, 10);
  admission->Cancel(running);
  admission->Cancel(queued);
  admission->Cancel(12345);
  const AdmissionPlan& plan = Plan();
  ASSERT_EQ(plan.end.size(), 2U);
  EXPECT_EQ(plan.end[0].refusal.reason, RefusalReason::kCancelledByClient);
  EXPECT_TRUE(plan.admit.empty()) << "a cancelled request never starts";
}

TEST_F(Verdict, AHeldClassKeepsItsWaitersAndADrainedOneEndsThem) {
  const RequestKey queued = Add(0, 10);
  policy.classes[0].stop = ClassStop::kHold;
  admission->SetPolicy(policy);
  const AdmissionPlan& held = Plan();
  EXPECT_TRUE(held.admit.empty() && held.end.empty());
  policy.classes[0].stop = ClassStop::kDrain;
  admission->SetPolicy(policy);
  const AdmissionPlan& drained = Plan();
  ASSERT_EQ(drained.end.size(), 1U);
  EXPECT_EQ(drained.end[0].key, queued);
  EXPECT_EQ(drained.end[0].refusal.reason, RefusalReason::kClassOnHold);
}

}  // namespace
}  // namespace berth
