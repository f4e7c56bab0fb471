#include "admission/outlook.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "admission_fixture.h"

namespace berth {
namespace {

using Kind = RequestOutlook::Kind;

// 20 blocks and 8 slots: interactive is guaranteed 10 of them and rejects, batch is guaranteed 4, borrows and queues.
class Outlook : public AdmissionTest {
 protected:
  void SetUp() override {
    ClassPolicy interactive = Class("interactive", 10, 0, false, 100, 4);
    interactive.overload = Overload::kReject;
    Use(20, 8, {interactive, Class("batch", 4, 16, true, 1, 0)});
  }
  RequestOutlook Foresee(const AdmissionRequest& request) { return admission->Foresee(request, At(now)); }
};

TEST_F(Outlook, WithinItsGuaranteeAClassStartsThoughOthersHaveTheRest) {
  Add(1, 20);
  Plan();
  EXPECT_EQ(Foresee(Request(0, 10)).kind, Kind::kStarts);
  EXPECT_EQ(admission->ledger().used(0), 0);
  EXPECT_EQ(admission->waiting(0), 0);
}

TEST_F(Outlook, AFullClassThatRejectsNamesTheLimitAndWhenToComeBack) {
  Add(0, 8);
  Plan();
  const RequestOutlook outlook = Foresee(Request(0, 5));
  EXPECT_EQ(outlook.kind, Kind::kRefused);
  EXPECT_EQ(outlook.refusal->reason, RefusalReason::kKvCapacityExhausted);
  EXPECT_EQ(outlook.refusal->limit_name, "class_kv_blocks");
  EXPECT_GT(outlook.refusal->retry_after, Duration(0));
}

TEST_F(Outlook, AFullClassThatQueuesSaysForHowLong) {
  Add(1, 18);
  Plan();
  const RequestOutlook outlook = Foresee(Request(1, 5));
  EXPECT_EQ(outlook.kind, Kind::kQueues);
  EXPECT_GE(outlook.wait, Seconds(1));
}

TEST_F(Outlook, WhatWaitsAlreadyGoesFirst) {
  Add(0, 6);  // starts in the next plan
  EXPECT_EQ(Foresee(Request(0, 4)).kind, Kind::kStarts);
  EXPECT_EQ(Foresee(Request(0, 5)).kind, Kind::kRefused);
}

TEST_F(Outlook, ATenantsQuotaCounts) {
  policy.tenants[1].max_kv_blocks = 6;
  admission->SetPolicy(policy);
  Add(1, 4, 1);
  Plan();
  EXPECT_EQ(Foresee(Request(1, 3, 1)).kind, Kind::kQueues);
  EXPECT_EQ(Foresee(Request(1, 2, 1)).kind, Kind::kStarts);
  EXPECT_EQ(Foresee(Request(1, 3, 0)).kind, Kind::kStarts);
}

TEST_F(Outlook, AVerdictIsTheVerdict) {
  const RequestOutlook outlook = Foresee(Request(0, 11));
  EXPECT_EQ(outlook.kind, Kind::kRefused);
  EXPECT_EQ(outlook.refusal->reason, RefusalReason::kRequestTooLarge);
}

// Where nobody else comes in between, it is what happens.
TEST_F(Outlook, IsWhatTheNextPlanDoes) {
  std::mt19937 random(1);
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  std::vector<RequestKey> running;
  int starts = 0;
  for (int i = 0; i < 500; ++i) {
    const ClassId c = static_cast<ClassId>(between(0, 1));
    // Where somebody waits, a later one may start before it or not.
    if (admission->waiting(c) == 0) {
      const AdmissionRequest request = Request(c, between(1, 12), static_cast<TenantId>(between(0, 2)));
      const RequestOutlook outlook = Foresee(request);
      const std::optional<Refusal> refusal = Submit(request);
      if (refusal) {
        ASSERT_EQ(outlook.kind, Kind::kRefused);
        ASSERT_EQ(outlook.refusal->reason, refusal->reason);
      } else {
        const AdmissionPlan& plan = Plan();
        const bool started = std::ranges::count(plan.admit, request.key, &AdmissionPlan::Start::key) > 0;
        ASSERT_EQ(outlook.kind == Kind::kStarts, started) << "request " << i << " of class " << c;
        for (const auto& start : plan.admit) running.push_back(start.key);
        for (const RequestKey key : plan.preempt) std::erase(running, key);
        starts += started ? 1 : 0;
      }
    }
    if (!running.empty() && between(0, 2) > 0) {
      const auto done = running.begin() + between(0, std::ssize(running) - 1);
      admission->Finish(*done, At(now), 1);
      running.erase(done);
    }
    const AdmissionPlan& plan = Plan();
    for (const auto& start : plan.admit) running.push_back(start.key);
    for (const RequestKey key : plan.preempt) std::erase(running, key);
  }
  EXPECT_GT(starts, 50);
}

}  // namespace
}  // namespace berth
