// The table of everything that /metrics shows: one row per metric family. Exposition, docs/metrics.md and the tests of
// rules and dashboards are made from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace berth {

enum class MetricId : std::uint8_t {
  // Load.
  kRequestsRunning,
  kRequestsQueued,
  kRequestsPreempted,
  kQueueOldestAge,
  kClassStopped,
  kClassGuaranteeUnmet,
  kPressure,
  kClassPressure,
  // Outcome.
  kRequests,
  // KV.
  kKvBlocks,
  kKvReservedUnspentBlocks,
  kKvUsedRatio,
  kKvCommittedRatio,
  kClassKvGuaranteed,
  kClassKvCeiling,
  kClassKvUsed,
  kClassKvBorrowed,
  kClassKvLent,
  kClassKvDebt,
  kKvAllocationFailures,
  kKvEstimateRatio,
  kPreemptions,
  kRecomputedTokens,
  kPrefixCacheQueries,
  kPrefixCacheHits,
  kCacheConfigInfo,
  // Latency.
  kTimeToFirstToken,
  kInterTokenLatency,
  kTimePerOutputToken,
  kQueueTime,
  kPrefillTime,
  kDecodeTime,
  kE2eLatency,
  // Work.
  kRequestPromptTokens,
  kRequestOutputTokens,
  kPromptTokens,
  kOutputTokens,
  kUsefulTokens,
  kStepSeconds,
  kStepHostGap,
  kAcceleratorBusy,
  // Cost.
  kKvBlockSeconds,
  kAcceleratorSeconds,
  kWastedAcceleratorSeconds,
  // SLO.
  kSloRequests,
  kSloObjective,
  kSloThreshold,
  // Routers.
  kRouterWaiting,
  kRouterRunning,
  kRouterKvUsage,
  // Server.
  kBuildInfo,
  kConfigInfo,
  kConfigLastReloadSuccessful,
  kConfigLastReloadSuccessTimestamp,
  kConfigReloads,
  kGrpcCallsStarted,
  kGrpcCallDuration,
  // Process.
  kProcessCpuSeconds,
  kProcessResidentMemory,
  kProcessVirtualMemory,
  kProcessVirtualMemoryMax,
  kProcessOpenFds,
  kProcessMaxFds,
  kProcessStartTime,
  kProcessThreads,
};

enum class MetricType : std::uint8_t { kCounter, kGauge, kHistogram };

// Whom a series is about: the labels class and tenant.
enum class MetricScope : std::uint8_t { kServer, kClass, kTenant };  // kTenant: by class and tenant

// The labels of a metric besides model_name, class and tenant, and the combinations of their values: the columns and
// rows of a small table. Those from kGrpcMethod on are known when a server starts.
enum class RowSet : std::uint8_t {
  kNone,
  kOutcomeReason,
  kBlockState,
  kResource,
  kPreemptionMode,
  kStepKind,
  kPhase,
  kBlockSecondsKind,
  kWasteReason,
  kSloResult,
  kPromise,
  kReloadResult,
  kGrpcMethod,
  kGrpcCall,
  kBuild,
  kConfig,
  kCacheConfig,
};
inline constexpr std::size_t kNumRowSets = 17;

struct LabelRows {
  std::vector<std::string> names;
  std::vector<std::vector<std::string>> rows;  // each as long as `names`
};

struct MetricSpec {
  MetricId id;
  const char* name;
  MetricType type;
  MetricScope scope;
  RowSet rows;
  std::span<const double> buckets;  // upper bounds, rising; of histograms alone
  const char* unit;
  const char* help;
  const char* moved_by;

  bool by_class() const { return scope != MetricScope::kServer; }
  bool by_tenant() const { return scope == MetricScope::kTenant; }
  // Those whose names are common to all servers have none.
  bool has_model_label() const;
};

// In the order of MetricId.
std::span<const MetricSpec> MetricTable();
inline const MetricSpec& SpecOf(MetricId id) { return MetricTable()[static_cast<std::size_t>(id)]; }

}  // namespace berth
