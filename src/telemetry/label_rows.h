// The values that the labels of a metric can have besides model, class and tenant, and where each stands.
#pragma once

#include <array>
#include <span>
#include <string>

#include "berth/metrics.h"
#include "telemetry/metric_table.h"

namespace berth {

using LabelRowSets = std::array<LabelRows, kNumRowSets>;

// All that do not depend on the server; the others are empty.
LabelRowSets FixedLabelRows();
inline LabelRows& RowsOf(LabelRowSets* sets, RowSet set) { return (*sets)[static_cast<std::size_t>(set)]; }

// Calls of `methods` and every status that gRPC knows, methods first.
LabelRows GrpcCallRows(std::span<const std::string> methods);
inline constexpr int kNumGrpcStatuses = 17;
inline int GrpcCallRow(RpcMethod method, int status) {
  const int known = status >= 0 && status < kNumGrpcStatuses ? status : 2;  // UNKNOWN
  return method * kNumGrpcStatuses + known;
}

// Of RowSet::kOutcomeReason.
int OutcomeRow(const std::variant<FinishReason, RefusalReason>& reason, bool started);
RequestOutcome OutcomeOf(const std::variant<FinishReason, RefusalReason>& reason, bool started);
// A request could get this answer before anybody looked at its class.
bool IsRejectionRow(int row);
// Does not happen unless something is wrong: not shown until it does.
bool IsUnexpectedRow(int row);

// Of the other fixed sets, in the order of their rows.
enum BlockStateRow : int { kFreeRow, kCachedRow, kHeldRow };
enum ResourceRow : int { kKvRow, kSlotsRow, kComputeRow };
enum StepKindRow : int { kPrefillStepRow, kDecodeStepRow, kMixedStepRow };
enum BlockSecondsRow : int { kReservedRow, kHeldSecondsRow };
enum WasteRow : int { kRecomputeRow, kDeadlineRow, kCancelledRow, kErrorRow };
enum SloRow : int { kTtftSlo, kItlSlo, kDeadlineSlo };
inline int SloResultRow(SloRow slo, bool met) { return slo * 2 + (met ? 0 : 1); }
inline int ReloadRow(bool successful) { return successful ? 0 : 1; }

}  // namespace berth
