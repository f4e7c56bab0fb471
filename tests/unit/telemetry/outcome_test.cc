// Which outcome and reason a request is counted under.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "berth/metrics.h"
#include "telemetry/label_rows.h"

namespace berth::test {
namespace {

std::vector<std::string> Labels(const std::variant<FinishReason, RefusalReason>& reason, bool started) {
  LabelRowSets sets = FixedLabelRows();
  return RowsOf(&sets, RowSet::kOutcomeReason).rows.at(static_cast<std::size_t>(OutcomeRow(reason, started)));
}
using Pair = std::vector<std::string>;

TEST(OutcomeTest, AGoodEndIsOkWithItsFinishReason) {
  EXPECT_EQ(Labels(FinishReason::kStopToken, true), (Pair{"ok", "stop_token"}));
  EXPECT_EQ(Labels(FinishReason::kDeadline, true), (Pair{"ok", "deadline"}));
}

TEST(OutcomeTest, WhatNeverStartedIsRejectedButForWhatWaitingDidToIt) {
  EXPECT_EQ(Labels(RefusalReason::kInvalidRequest, false), (Pair{"rejected", "invalid_request"}));
  EXPECT_EQ(Labels(RefusalReason::kKvCapacityExhausted, false), (Pair{"rejected", "kv_capacity_exhausted"}));
  EXPECT_EQ(Labels(RefusalReason::kDraining, false), (Pair{"rejected", "draining"}));
  EXPECT_EQ(Labels(RefusalReason::kShed, false), (Pair{"shed", "shed"}));
  EXPECT_EQ(Labels(RefusalReason::kQueueTimeout, false), (Pair{"queue_timeout", "queue_timeout"}));
  EXPECT_EQ(Labels(RefusalReason::kDeadlineInfeasible, false), (Pair{"deadline", "deadline_infeasible"}));
  EXPECT_EQ(Labels(RefusalReason::kCancelledByClient, false), (Pair{"cancelled", "cancelled_by_client"}));
}

TEST(OutcomeTest, OperatorsSlowReadersAndDrainsCountAsTheyAreCalled) {
  EXPECT_EQ(OutcomeOf("CANCELLED_BY_OPERATOR", true), RequestOutcome::kCancelled);
  EXPECT_EQ(OutcomeOf("SLOW_READER", true), RequestOutcome::kCancelled);
  EXPECT_EQ(OutcomeOf("DRAIN_TIMEOUT", true), RequestOutcome::kError);
  EXPECT_EQ(OutcomeOf("PREEMPTED_TOO_OFTEN", true), RequestOutcome::kError);
}

TEST(OutcomeTest, ARefusalThatEndsWhatHadStartedIsAnError) {
  EXPECT_EQ(Labels(RefusalReason::kDraining, true), (Pair{"error", "draining"}));
  EXPECT_EQ(Labels(RefusalReason::kKvCapacityExhausted, true), (Pair{"error", "kv_capacity_exhausted"}));
  EXPECT_EQ(Labels(RefusalReason::kBackendFault, true), (Pair{"error", "backend_fault"}));
}

TEST(OutcomeTest, EveryReasonHasARowOfItsOwn) {
  std::set<int> rows;
  std::size_t asked = 0;
  for (int i = 0; i <= static_cast<int>(FinishReason::kDeadline); ++i, ++asked) {
    rows.insert(OutcomeRow(static_cast<FinishReason>(i), true));
  }
  for (int i = 0; RefusalReasonName(static_cast<RefusalReason>(i))[0] != '?'; ++i) {
    const auto reason = static_cast<RefusalReason>(i);
    rows.insert(OutcomeRow(reason, false));
    ++asked;
    if (OutcomeOf(reason, true) == OutcomeOf(reason, false)) continue;
    rows.insert(OutcomeRow(reason, true));
    ++asked;
    EXPECT_TRUE(IsUnexpectedRow(OutcomeRow(reason, true)));
  }
  LabelRowSets sets = FixedLabelRows();
  EXPECT_EQ(rows.size(), asked);
  EXPECT_EQ(RowsOf(&sets, RowSet::kOutcomeReason).rows.size(), asked);
}

}  // namespace
}  // namespace berth::test
