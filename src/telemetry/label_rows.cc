#include "telemetry/label_rows.h"

#include <string_view>
#include <utility>
#include <vector>

namespace berth {
namespace {

constexpr int kNumFinishReasons = static_cast<int>(FinishReason::kDeadline) + 1;

// RefusalReason's values follow each other from 0; behind the last one there is no name.
constexpr int NumRefusalReasons() {
  int count = 0;
  while (RefusalReasonName(static_cast<RefusalReason>(count))[0] != '?') ++count;
  return count;
}
constexpr int kNumRefusalReasons = NumRefusalReasons();

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// Good ends by finish reason, then every refusal as it ends a request that had not started, then as one that had.
LabelRows OutcomeReasonRows() {
  LabelRows rows{.names = {"outcome", "reason"}, .rows = {}};
  for (int i = 0; i < kNumFinishReasons; ++i) {
    rows.rows.push_back({RequestOutcomeName(RequestOutcome::kOk), LowerCase(FinishReasonName(FinishReason(i)))});
  }
  for (const bool started : {false, true}) {
    for (int i = 0; i < kNumRefusalReasons; ++i) {
      const auto reason = static_cast<RefusalReason>(i);
      const RequestOutcome outcome = OutcomeOf(reason, started);
      // One row for both where it makes no difference: the first.
      if (started && outcome == OutcomeOf(reason, false)) continue;
      rows.rows.push_back({RequestOutcomeName(outcome), LowerCase(RefusalReasonName(reason))});
    }
  }
  return rows;
}

LabelRows OneLabel(std::string name, std::initializer_list<const char*> values) {
  LabelRows rows{.names = {std::move(name)}, .rows = {}};
  for (const char* value : values) rows.rows.push_back({value});
  return rows;
}

LabelRows SloResultRows() {
  LabelRows rows{.names = {"slo", "result"}, .rows = {}};
  for (const char* slo : {"ttft", "itl", "deadline"}) {
    for (const char* result : {"met", "missed"}) rows.rows.push_back({slo, result});
  }
  return rows;
}

}  // namespace

LabelRowSets FixedLabelRows() {
  LabelRowSets sets;
  RowsOf(&sets, RowSet::kNone) = {.names = {}, .rows = {{}}};
  RowsOf(&sets, RowSet::kOutcomeReason) = OutcomeReasonRows();
  RowsOf(&sets, RowSet::kBlockState) = OneLabel("state", {"free", "cached", "held"});
  RowsOf(&sets, RowSet::kResource) = OneLabel("resource", {"kv", "slots", "compute"});
  RowsOf(&sets, RowSet::kPreemptionMode) = OneLabel("mode", {"recompute", "swap"});
  RowsOf(&sets, RowSet::kStepKind) = OneLabel("phase", {"prefill", "decode", "mixed"});
  RowsOf(&sets, RowSet::kPhase) = OneLabel("phase", {"prefill", "decode"});
  RowsOf(&sets, RowSet::kBlockSecondsKind) = OneLabel("kind", {"reserved", "held"});
  RowsOf(&sets, RowSet::kWasteReason) = OneLabel("reason", {"recompute", "deadline", "cancelled", "error"});
  RowsOf(&sets, RowSet::kSloResult) = SloResultRows();
  RowsOf(&sets, RowSet::kPromise) = OneLabel("slo", {"ttft", "itl"});
  RowsOf(&sets, RowSet::kReloadResult) = OneLabel("result", {"success", "failure"});
  return sets;
}

LabelRows GrpcCallRows(std::span<const std::string> methods) {
  constexpr const char* kStatuses[kNumGrpcStatuses] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  LabelRows rows{.names = {"grpc_method", "grpc_status"}, .rows = {}};
  for (const std::string& method : methods) {
    for (const char* status : kStatuses) rows.rows.push_back({method, status});
  }
  return rows;
}

RequestOutcome OutcomeOf(const std::variant<FinishReason, RefusalReason>& reason, bool started) {
  if (std::holds_alternative<FinishReason>(reason)) return RequestOutcome::kOk;
  return OutcomeOf(std::get<RefusalReason>(reason), started);
}

int OutcomeRow(const std::variant<FinishReason, RefusalReason>& reason, bool started) {
  if (const auto* finish = std::get_if<FinishReason>(&reason)) return static_cast<int>(*finish);
  const RefusalReason refusal = std::get<RefusalReason>(reason);
  if (!started || OutcomeOf(refusal, true) == OutcomeOf(refusal, false)) {
    return kNumFinishReasons + static_cast<int>(refusal);
  }
  int row = kNumFinishReasons + kNumRefusalReasons;
  for (int i = 0; i < static_cast<int>(refusal); ++i) {
    const auto before = static_cast<RefusalReason>(i);
    if (OutcomeOf(before, true) != OutcomeOf(before, false)) ++row;
  }
  return row;
}

bool IsRejectionRow(int row) {
  const int refusal = row - kNumFinishReasons;
  return refusal >= 0 && refusal < kNumRefusalReasons &&
         OutcomeOf(static_cast<RefusalReason>(refusal), false) == RequestOutcome::kRejected;
}

bool IsUnexpectedRow(int row) { return row >= kNumFinishReasons + kNumRefusalReasons; }

}  // namespace berth
