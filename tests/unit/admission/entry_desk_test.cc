// One test per row of the verdict table that needs no prompt, and the order of the rows.
#include "admission/entry_desk.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace berth {
namespace {

class EntryDeskTest : public testing::Test {
 protected:
  void SetUp() override {
    policy.classes.resize(2);
    policy.classes[0].name = "interactive";
    policy.classes[0].max_sequence_tokens = 50;
    policy.classes[0].max_queued_requests = 4;
    policy.classes[1].name = "batch";
    policy.tenants.resize(2);
    policy.max_running_sequences = 8;
    desk = std::make_unique<EntryDesk>(policy);
  }

  RefusalReason Reason(const Arrival& arrival) {
    const auto refusal = desk->Enter(arrival);
    EXPECT_TRUE(refusal.has_value() && !refusal->message.empty());
    return refusal.has_value() ? refusal->reason : RefusalReason::kUnimplemented;
  }

  Policy policy;
  std::unique_ptr<EntryDesk> desk;
};

TEST_F(EntryDeskTest, TellsTheFirstFaultInTheOrderOfTheTable) {
  // Each arrival has every fault from its row on.
  Arrival arrival{0, 0, 9, true, 1000};
  policy.tenants[0].classes = {1};
  policy.classes[0].stop = ClassStop::kHold;
  policy.classes[0].max_queued_requests = 1;
  desk->SetPolicy(policy);
  desk->StartDraining();
  EXPECT_EQ(Reason(arrival), RefusalReason::kDraining);
  desk = std::make_unique<EntryDesk>(policy);
  EXPECT_EQ(Reason(arrival), RefusalReason::kInvalidRequest);
  arrival.n = 1;
  arrival.service_class = 7;
  EXPECT_EQ(Reason(arrival), RefusalReason::kUnknownClass);
  arrival.service_class = 0;
  EXPECT_EQ(Reason(arrival), RefusalReason::kClassNotAllowed);
  arrival.tenant = 1;
  EXPECT_EQ(Reason(arrival), RefusalReason::kClassOnHold);
  policy.classes[0].stop = ClassStop::kNone;
  desk->SetPolicy(policy);
  EXPECT_EQ(Reason(arrival), RefusalReason::kDuplicateRequestId);
  arrival.duplicate_id = false;
  EXPECT_EQ(Reason(arrival), RefusalReason::kRequestTooLarge);
  arrival.least_prompt_tokens = 1;
  EXPECT_FALSE(desk->Enter(arrival).has_value());
  EXPECT_EQ(Reason(arrival), RefusalReason::kQueueFull);
}

TEST_F(EntryDeskTest, NOutsideTheMachineIsAnInvalidRequest) {
  for (const std::int32_t n : {0, -1, 9}) {
    const auto refusal = desk->Enter({0, 0, n, false, 1});
    ASSERT_TRUE(refusal.has_value());
    EXPECT_EQ(refusal->reason, RefusalReason::kInvalidRequest);
    EXPECT_EQ(refusal->field, "sampling.n");
    EXPECT_EQ(refusal->limit_name, "max_running_sequences");
    EXPECT_EQ(refusal->limit, 8);
    EXPECT_EQ(refusal->asked, n);
  }
}

TEST_F(EntryDeskTest, ARemovedClassIsUnknown) {
  policy.classes[1].removed = true;
  desk->SetPolicy(policy);
  EXPECT_EQ(Reason({1, 0, 1, false, 1}), RefusalReason::kUnknownClass);
}

TEST_F(EntryDeskTest, ThreeHundredArrivalsInOneTickNeverExceedABound) {
  int entered = 0;
  for (int i = 0; i < 300; ++i) entered += desk->Enter({0, 0, 1, false, 1}).has_value() ? 0 : 1;
  EXPECT_EQ(entered, 4);
  EXPECT_EQ(desk->places_taken(0), 4);
  EXPECT_FALSE(desk->Enter({1, 0, 1, false, 1}).has_value()) << "another class has a bound of its own";
}

TEST_F(EntryDeskTest, AFullQueueSaysWhenToComeBackAndAPlaceThatIsLeftIsFree) {
  desk->SetRetryAfter(0, std::chrono::seconds(3));
  for (int i = 0; i < 4; ++i) ASSERT_FALSE(desk->Enter({0, 0, 1, false, 1}).has_value());
  const auto refusal = desk->Enter({0, 0, 1, false, 1});
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->limit_name, "queue.max_requests");
  EXPECT_EQ(refusal->limit, 4);
  EXPECT_EQ(refusal->asked, 5);
  EXPECT_EQ(refusal->retry_after, Duration(std::chrono::seconds(3)));
  desk->Leave(0);
  EXPECT_FALSE(desk->Enter({0, 0, 1, false, 1}).has_value());
}

TEST_F(EntryDeskTest, APreemptedRequestTakesAPlaceBeyondTheBoundAndNewcomersWaitForIt) {
  for (int i = 0; i < 4; ++i) ASSERT_FALSE(desk->Enter({0, 0, 1, false, 1}).has_value());
  desk->Park(0);
  EXPECT_EQ(desk->places_taken(0), 5);
  desk->Leave(0);
  EXPECT_EQ(Reason({0, 0, 1, false, 1}), RefusalReason::kQueueFull);
}

TEST_F(EntryDeskTest, APolicyChangeKeepsThePlacesTaken) {
  for (int i = 0; i < 4; ++i) ASSERT_FALSE(desk->Enter({0, 0, 1, false, 1}).has_value());
  policy.classes[0].max_queued_requests = 2;
  policy.classes.emplace_back().name = "new";
  desk->SetPolicy(policy);
  EXPECT_EQ(desk->places_taken(0), 4);
  EXPECT_EQ(desk->places_taken(2), 0);
  EXPECT_EQ(Reason({0, 0, 1, false, 1}), RefusalReason::kQueueFull);
}

}  // namespace
}  // namespace berth
