// Who may hold which blocks: the worked examples behind the rules.
#include <gtest/gtest.h>

#include "admission_fixture.h"

namespace berth {
namespace {

class Reservation : public AdmissionTest {};

TEST_F(Reservation, AGuaranteeIsServedAtOnceByPreemptingABorrower) {
  Use(10, 20, {Class("interactive", 6, 0, false, 9, 10), Class("batch", 4, 6, true, 1, 10)});
  const RequestKey a = Add(1, 4);
  const RequestKey b = Add(1, 6);
  EXPECT_EQ(Started(), (Keys{a, b}));
  const RequestKey claim = Add(0, 6);
  const AdmissionPlan& plan = Plan();
  ASSERT_EQ(plan.admit.size(), 1U);
  EXPECT_EQ(plan.admit[0].key, claim);
  EXPECT_EQ(plan.preempt, Keys{b}) << "one that frees enough, not both";
}

TEST_F(Reservation, GuaranteesHoldForSlotsAsForBlocks) {
  Use(100, 4, {Class("interactive", 50, 0, false, 9, 2), Class("batch", 0, 100, true, 1, 0)});
  for (int i = 0; i < 4; ++i) Add(1, 1);
  EXPECT_EQ(Started().size(), 4U);
  const RequestKey claim = Add(0, 1);
  const AdmissionPlan& plan = Plan();
  ASSERT_EQ(plan.admit.size(), 1U);
  EXPECT_EQ(plan.admit[0].key, claim);
  EXPECT_EQ(plan.preempt.size(), 1U);
}

TEST_F(Reservation, TheVictimIsTheCheapestToRecomputePerFreedBlock) {
  Use(10, 20, {Class("interactive", 4, 0, false, 9, 10), Class("batch", 0, 10, true, 1, 0)});
  const RequestKey cheap = Add(1, 5);
  const RequestKey dear = Add(1, 5);
  Plan();
  view.recompute[cheap] = 10;
  view.recompute[dear] = 1000;
  Add(0, 4);
  EXPECT_EQ(Plan().preempt, Keys{cheap});
}

TEST_F(Reservation, NobodyIsPreemptedForSpaceBeyondAGuarantee) {
  Use(10, 20, {Class("interactive", 4, 6, false, 9, 10), Class("batch", 0, 10, true, 1, 0)});
  Add(1, 8);
  Plan();
  Add(0, 5);  // beyond its guarantee of 4
  const AdmissionPlan& plan = Plan();
  EXPECT_TRUE(plan.preempt.empty() && plan.admit.empty());
}

// Two non-preemptible classes may fill the common space together, and no more.
TEST_F(Reservation, NonPreemptibleClassesTogetherUseOnlyTheCommonSpace) {
  Use(20, 40, {Class("a", 5, 15, false, 9, 10), Class("b", 5, 15, false, 8, 10)});  // common: 10
  const RequestKey a = Add(0, 12);                                                  // 7 beyond
  const RequestKey b = Add(1, 8);                                                   // 3 beyond
  EXPECT_EQ(Started(), (Keys{a, b}));
  Add(1, 1);
  EXPECT_TRUE(Started().empty());
  Finish(a);
  EXPECT_EQ(Started().size(), 1U);
}

TEST_F(Reservation, WhatIsNotLentIsNeverBorrowed) {
  ClassPolicy keeper = Class("keeper", 10, 0, false, 9, 10);
  keeper.kv_lending_limit_blocks = 4;  // keeps 6 back
  Use(20, 40, {keeper, Class("batch", 0, 20, true, 1, 0)});
  EXPECT_EQ(Submit(Request(1, 15))->reason, RefusalReason::kRequestTooLarge);
  const RequestKey a = Add(1, 14);
  EXPECT_EQ(Started(), Keys{a});
  Add(1, 1);
  EXPECT_TRUE(Started().empty());
  const RequestKey claim = Add(0, 6);
  const AdmissionPlan& plan = Plan();
  EXPECT_EQ(plan.admit[0].key, claim);
  EXPECT_TRUE(plan.preempt.empty()) << "what is kept back need not be reclaimed";
}

TEST_F(Reservation, APrefixSharedAcrossClassesIsChargedFullyToEachAndOutlivesItsFirstOwner) {
  Use(20, 40, {Class("a", 10, 0, false, 9, 10), Class("b", 10, 0, false, 8, 10)});
  const RequestKey first = Add(0, 8);
  Plan();
  const RequestKey second = Add(1, 8);
  view.cached[second] = {{0, first}, {1, first}, {2, first}};
  EXPECT_EQ(Started(), Keys{second});
  EXPECT_EQ(admission->ledger().used(0), 8);
  EXPECT_EQ(admission->ledger().used(1), 8);
  EXPECT_EQ(admission->ledger().pool_used(), 13);
  Finish(first);
  EXPECT_EQ(admission->ledger().used(0), 0);
  EXPECT_EQ(admission->ledger().used(1), 8);
  EXPECT_EQ(admission->ledger().pool_used(), 8);
}

TEST_F(Reservation, AFullPrefixHitStillReservesItsWorstCase) {
  Use(10, 40, {Class("a", 10, 0, false, 9, 10)});
  const RequestKey request = Add(0, 4);
  view.cached[request] = {{0, kNoRequest}, {1, kNoRequest}, {2, kNoRequest}};
  const AdmissionPlan& plan = Plan();
  ASSERT_EQ(plan.admit.size(), 1U);
  EXPECT_EQ(plan.admit[0].reserved_blocks, 4);
  EXPECT_EQ(admission->ledger().pool_used(), 4);
}

// Each of the two frees little while the other lives; together they free everything.
TEST_F(Reservation, TwoBorrowersThatShareAPrefixAreCountedTogetherAsVictims) {
  Use(10, 20, {Class("interactive", 8, 0, false, 9, 10), Class("batch", 0, 10, true, 1, 0)});
  const RequestKey a = Add(1, 7);
  Plan();
  const RequestKey b = Add(1, 7);
  view.cached[b] = {{0, a}, {1, a}, {2, a}, {3, a}, {4, a}};
  EXPECT_EQ(Started(), Keys{b});
  EXPECT_EQ(admission->ledger().pool_used(), 9);
  const RequestKey claim = Add(0, 8);
  const AdmissionPlan& plan = Plan();
  EXPECT_EQ(plan.preempt.size(), 2U);
  ASSERT_EQ(plan.admit.size(), 1U);
  EXPECT_EQ(plan.admit[0].key, claim);
}

TEST_F(Reservation, IfTheNeedCannotBeMetNobodyIsPreempted) {
  Use(10, 20, {Class("a", 5, 5, false, 9, 10), Class("b", 5, 5, false, 8, 10), Class("c", 0, 10, true, 1, 0)});
  // A policy change leaves class a beyond everything: b's guarantee is in debt.
  policy.classes[0].kv_guarantee_blocks = 9;
  policy.classes[1].kv_guarantee_blocks = 0;
  admission->SetPolicy(policy);
  Add(0, 9);
  Add(2, 1);
  Plan();
  policy.classes[0].kv_guarantee_blocks = 0;
  policy.classes[1].kv_guarantee_blocks = 5;
  admission->SetPolicy(policy);
  Add(1, 5);
  const AdmissionPlan& plan = Plan();
  EXPECT_TRUE(plan.preempt.empty());
  EXPECT_TRUE(plan.admit.empty());
}

TEST_F(Reservation, APreemptedRequestStartsAgainBeforeNewcomersOfItsClassAndTenant) {
  Use(10, 20, {Class("interactive", 10, 0, false, 9, 10), Class("batch", 0, 10, true, 1, 0)});
  const RequestKey victim = Add(1, 6);
  Plan();
  const RequestKey claim = Add(0, 8);
  EXPECT_EQ(Plan().preempt, Keys{victim});
  const RequestKey newcomer = Add(1, 1);
  view.steps[newcomer] = 1;
  EXPECT_TRUE(Started().empty()) << "no queued request backfills past a parked one of its class and tenant";
  Finish(claim);
  EXPECT_EQ(Started(), (Keys{victim, newcomer}));
}

TEST_F(Reservation, AfterItsMostPreemptionsARequestIsProtected) {
  ClassPolicy batch = Class("batch", 4, 6, true, 1, 4);
  batch.max_preemptions = 1;
  Use(10, 20, {Class("interactive", 6, 0, false, 9, 10), batch});
  const RequestKey big = Add(1, 4);
  const RequestKey borrower = Add(1, 4);
  Plan();
  RequestKey claim = Add(0, 6);
  const Keys first = Plan().preempt;
  ASSERT_EQ(first, Keys{borrower});
  EXPECT_TRUE(admission->Find(borrower)->is_protected);
  Finish(claim);
  EXPECT_EQ(Started(), Keys{borrower});
  claim = Add(0, 6);
  const AdmissionPlan& plan = Plan();
  EXPECT_EQ(plan.preempt, Keys{big}) << "a protected request is never a victim again";
}

// It cannot be protected: larger than its class's guarantee.
TEST_F(Reservation, ARequestLargerThanItsGuaranteeEndsWhenPreemptedOnceMoreThanAllowed) {
  ClassPolicy batch = Class("batch", 2, 8, true, 1, 4);
  batch.max_preemptions = 2;
  Use(10, 20, {Class("interactive", 8, 0, false, 9, 10), batch});
  const RequestKey large = Add(1, 6);
  Plan();
  for (int i = 0; i < 2; ++i) {
    const RequestKey claim = Add(0, 8);
    EXPECT_EQ(Plan().preempt, Keys{large});
    EXPECT_FALSE(admission->Find(large)->is_protected);
    Finish(claim);
    EXPECT_EQ(Started(), Keys{large});
  }
  Add(0, 8);
  const AdmissionPlan& plan = Plan();
  EXPECT_EQ(plan.preempt, Keys{large});
  ASSERT_EQ(plan.too_often.size(), 1U);
  EXPECT_EQ(plan.too_often[0].refusal.reason, RefusalReason::kPreemptedTooOften);
  EXPECT_EQ(admission->Find(large), nullptr);
}

TEST_F(Reservation, AShrunkClassGoesIntoDebtAndNothingRunningEnds) {
  Use(20, 40, {Class("a", 15, 0, false, 9, 10), Class("b", 0, 20, true, 1, 0)});
  const RequestKey running = Add(0, 12);
  Plan();
  const RequestKey waits = Add(0, 10);
  policy.classes[0].kv_guarantee_blocks = 8;
  admission->SetPolicy(policy);
  EXPECT_EQ(admission->ledger().Debt(0), 4);
  const AdmissionPlan& plan = Plan();
  ASSERT_EQ(plan.end.size(), 1U);
  EXPECT_EQ(plan.end[0].key, waits);
  EXPECT_EQ(plan.end[0].refusal.reason, RefusalReason::kRequestTooLarge);
  EXPECT_EQ(plan.end[0].refusal.limit, 8);
  EXPECT_NE(admission->Find(running), nullptr);
}

TEST_F(Reservation, AGroupShrinksWhenAChoiceEnds) {
  Use(20, 40, {Class("a", 20, 0, false, 9, 10)});
  AdmissionRequest group = Request(0, 5);
  group.prompt_tokens = 3;
  group.n = 3;
  ASSERT_FALSE(Submit(group).has_value());
  Plan();
  EXPECT_EQ(admission->ledger().used(0), 3 + 3 * 4);
  EXPECT_EQ(admission->ledger().slots_used(0), 3);
  admission->EndChoice(group.key, {}, At(now));
  EXPECT_EQ(admission->ledger().used(0), 3 + 2 * 4);
  EXPECT_EQ(admission->ledger().slots_used(0), 2);
}

TEST_F(Reservation, FourLongRequestsKeepRunningWhenAFifthArrives) {
  Use(100, 20, {Class("a", 0, 100, false, 9, 0)});
  for (int i = 0; i < 4; ++i) Add(0, 23);
  EXPECT_EQ(Started().size(), 4U);
  Add(0, 23);
  const AdmissionPlan& plan = Plan();
  EXPECT_TRUE(plan.preempt.empty() && plan.admit.empty());
}

}  // namespace
}  // namespace berth
