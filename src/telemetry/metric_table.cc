#include "telemetry/metric_table.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace berth {
namespace {

// Buckets as vLLM has them (vllm/v1/metrics/loggers.py), so that quantiles of both can be compared; the latency of
// tokens begins finer.
constexpr double kTtftBuckets[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25, 0.5,
                                   0.75,  1.0,   2.5,  5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0};
constexpr double kTokenBuckets[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1,  0.15, 0.2,  0.3,
                                    0.4,   0.5,    0.75,  1.0,  2.5,   5.0,  7.5,   10.0, 20.0, 40.0, 80.0};
constexpr double kRequestBuckets[] = {0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
                                      30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
constexpr double kCountBuckets[] = {1,    2,    5,    10,    20,    50,    100,    200,    500,
                                    1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000};
constexpr double kStepBuckets[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                   0.1,    0.25,  0.5,    1.0,   2.5,  5.0,   10.0};
constexpr double kGapBuckets[] = {0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001,
                                  0.0025,  0.005,    0.01,    0.025,  0.05,    0.1};
constexpr double kRatioBuckets[] = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0};
constexpr double kCallBuckets[] = {0.0005, 0.0025, 0.01, 0.05, 0.25, 1.0, 5.0, 20.0, 80.0, 320.0};

constexpr const char* kPlan = "engine, after each plan";
constexpr const char* kStep = "engine, after each step";
constexpr const char* kStart = "engine, when a request starts";
constexpr const char* kEnd = "frontend, when a request ends";
constexpr const char* kScrape = "read at the scrape";
constexpr const char* kReload = "start and reload";
constexpr const char* kRpc = "frontend, each call";

constexpr const char* kShown = "engine, when the token is shown";
constexpr const char* kHappens = "engine, when it happens";

using enum MetricId;
using enum MetricType;
using enum MetricScope;
using enum RowSet;

// clang-format off
// name, type, scope, further labels, buckets, unit, help, moved by
constexpr MetricSpec kTable[] = {
    {kRequestsRunning, "berth_requests_running", kGauge, kClass, kNone, {}, "requests",
     "Requests that hold KV blocks and take part in steps.", kPlan},
    {kRequestsQueued, "berth_requests_queued", kGauge, kTenant, kNone, {}, "requests",
     "Requests that wait for their first start.", kPlan},
    {kRequestsPreempted, "berth_requests_preempted", kGauge, kClass, kNone, {}, "requests",
     "Requests that were preempted and wait to go on.", kPlan},
    {kQueueOldestAge, "berth_queue_oldest_age_seconds", kGauge, kClass, kNone, {}, "seconds",
     "How long the request that has waited longest, queued or preempted, waits now; 0 where nobody waits.", kScrape},
    {kClassStopped, "berth_class_stopped", kGauge, kClass, kNone, {}, "0 or 1",
     "Whether the policy has the class stopped (hold or drain), so that it refuses newcomers.",
     "start, reload and `berth drain`"},
    {kClassGuaranteeUnmet, "berth_class_guarantee_unmet", kGauge, kClass, kNone, {}, "0 or 1",
     "Whether the class's first waiting request fits its guarantee and the last plan did not start it.", kPlan},
    {kPressure, "berth_pressure_ratio", kGauge, kServer, kNone, {}, "ratio",
     "Admitted and queued demand over capacity, of the scarcest resource; above 1 somebody waits. Scale on this.", kPlan},
    {kClassPressure, "berth_class_pressure_ratio", kGauge, kClass, kResource, {}, "ratio",
     "Admitted and queued demand of the class over what it can reach of KV blocks and slots, or over a step's "
     "tokens.", kPlan},

    {kRequests, "berth_requests_total", kCounter, kTenant, kOutcomeReason, {}, "requests",
     "Requests that ended. The reason of a good end is how its output ended.", kEnd},

    {kKvBlocks, "berth_kv_blocks", kGauge, kServer, kBlockState, {}, "blocks",
     "KV blocks of the pool by state; the states partition it. Cached blocks are free for anybody.", kPlan},
    {kKvReservedUnspentBlocks, "berth_kv_reserved_unspent_blocks", kGauge, kServer, kNone, {}, "blocks",
     "KV blocks that running requests have reserved and do not hold yet.", kPlan},
    {kKvUsedRatio, "berth_kv_used_ratio", kGauge, kServer, kNone, {}, "ratio",
     "Share of the pool that is held.", kPlan},
    {kKvCommittedRatio, "berth_kv_committed_ratio", kGauge, kServer, kNone, {}, "ratio",
     "Share of the pool that is held or reserved.", kPlan},
    {kClassKvGuaranteed, "berth_class_kv_guaranteed_blocks", kGauge, kClass, kNone, {}, "blocks",
     "KV blocks that the class is guaranteed.", kReload},
    {kClassKvCeiling, "berth_class_kv_ceiling_blocks", kGauge, kClass, kNone, {}, "blocks",
     "The most KV blocks that the class may use: its guarantee and what it may borrow.", kReload},
    {kClassKvUsed, "berth_class_kv_used_blocks", kGauge, kClass, kNone, {}, "blocks",
     "KV blocks charged to the class: held ones, and reserved ones not held yet. Blocks shared by classes count in "
     "each.", kPlan},
    {kClassKvBorrowed, "berth_class_kv_borrowed_blocks", kGauge, kClass, kNone, {}, "blocks",
     "KV blocks that the class uses beyond its guarantee.", kPlan},
    {kClassKvLent, "berth_class_kv_lent_blocks", kGauge, kClass, kNone, {}, "blocks",
     "KV blocks of the class's idle guarantee that borrowers use now.", kPlan},
    {kClassKvDebt, "berth_class_kv_debt_blocks", kGauge, kClass, kNone, {}, "blocks",
     "KV blocks that the class uses beyond what a policy change left it.", kPlan},
    {kKvAllocationFailures, "berth_kv_allocation_failures_total", kCounter, kServer, kNone, {}, "failures",
     "Blocks that were wanted and not there (room for a swap in host memory); never a reserved one.", kHappens},
    {kKvEstimateRatio, "berth_kv_estimate_ratio", kHistogram, kClass, kNone, kRatioBuckets, "ratio",
     "Most blocks really held over blocks reserved, of requests that had started.", kEnd},
    {kPreemptions, "berth_preemptions_total", kCounter, kClass, kPreemptionMode, {}, "preemptions",
     "Requests that had to give back their blocks, by what happens to what they had computed.", kHappens},
    {kRecomputedTokens, "berth_recomputed_tokens_total", kCounter, kClass, kNone, {}, "tokens",
     "Tokens that preemptions had lost and that were computed again.", kStep},
    {kPrefixCacheQueries, "berth_prefix_cache_queries_total", kCounter, kClass, kNone, {}, "tokens",
     "Prompt tokens looked up in the prefix cache.", kStart},
    {kPrefixCacheHits, "berth_prefix_cache_hits_total", kCounter, kClass, kNone, {}, "tokens",
     "Prompt tokens found in the prefix cache.", kStart},
    {kCacheConfigInfo, "berth_cache_config_info", kGauge, kServer, kCacheConfig, {}, "1",
     "Tokens in a KV block and blocks in the pool, as labels.", "start"},

    {kTimeToFirstToken, "berth_time_to_first_token_seconds", kHistogram, kClass, kNone, kTtftBuckets, "seconds",
     "From arrival to the first token. Counts requests that had one.", kShown},
    {kInterTokenLatency, "berth_inter_token_latency_seconds", kHistogram, kClass, kNone, kTokenBuckets, "seconds",
     "Between two tokens of a choice, preemptions included. Counts tokens but the first ones.", kShown},
    {kTimePerOutputToken, "berth_request_time_per_output_token_seconds", kHistogram, kClass, kNone, kTokenBuckets, "seconds",
     "Mean time between the tokens of a request. Counts requests with more than one token a choice.", kEnd},
    {kQueueTime, "berth_request_queue_time_seconds", kHistogram, kClass, kNone, kRequestBuckets, "seconds",
     "From arrival to the first start. Counts requests that had started.", kEnd},
    {kPrefillTime, "berth_request_prefill_time_seconds", kHistogram, kClass, kNone, kRequestBuckets, "seconds",
     "From the first start to the first token. Counts requests that had one.", kEnd},
    {kDecodeTime, "berth_request_decode_time_seconds", kHistogram, kClass, kNone, kRequestBuckets, "seconds",
     "From the first token to the end. Counts requests that had one.", kEnd},
    {kE2eLatency, "berth_e2e_request_latency_seconds", kHistogram, kClass, kNone, kRequestBuckets, "seconds",
     "From arrival to the end. Counts requests that had started.", kEnd},

    {kRequestPromptTokens, "berth_request_prompt_tokens", kHistogram, kClass, kNone, kCountBuckets, "tokens",
     "Prompt tokens of a request. Counts requests that had started.", kEnd},
    {kRequestOutputTokens, "berth_request_output_tokens", kHistogram, kClass, kNone, kCountBuckets, "tokens",
     "Output tokens of a request, all choices. Counts requests that had started.", kEnd},
    {kPromptTokens, "berth_prompt_tokens_total", kCounter, kTenant, kNone, {}, "tokens",
     "Prompt tokens of requests that started, those found in the prefix cache included.", kStart},
    {kOutputTokens, "berth_output_tokens_total", kCounter, kTenant, kNone, {}, "tokens",
     "Tokens that callers got.", kShown},
    {kUsefulTokens, "berth_useful_tokens_total", kCounter, kTenant, kNone, {}, "tokens",
     "Output tokens of requests that ended well and met their deadline, if they had one.", kEnd},
    {kStepSeconds, "berth_step_seconds", kHistogram, kServer, kStepKind, kStepBuckets, "seconds",
     "Time the backend computed a step: of prompts alone, of one token per sequence alone, or of both.", kStep},
    {kStepHostGap, "berth_step_host_gap_seconds", kHistogram, kServer, kNone, kGapBuckets, "seconds",
     "Time the backend stood still between two steps although there was work.", kStep},
    {kAcceleratorBusy, "berth_accelerator_busy_seconds_total", kCounter, kServer, kPhase, {}, "seconds",
     "Time the backend computed, split by what it computed.", kStep},

    {kKvBlockSeconds, "berth_kv_block_seconds_total", kCounter, kTenant, kBlockSecondsKind, {}, "block-seconds",
     "KV blocks times time: as reserved, which is what is billed, and as really held.", kEnd},
    {kAcceleratorSeconds, "berth_accelerator_seconds_total", kCounter, kTenant, kPhase, {}, "seconds",
     "The requests' shares of the backend's time, without what preemptions made them compute again.", kStep},
    {kWastedAcceleratorSeconds, "berth_wasted_accelerator_seconds_total", kCounter, kTenant, kWasteReason, {}, "seconds",
     "Backend time that helped nobody: spent on requests that did not end well, or computing again what a preemption "
     "had lost, which is charged to no tenant (other).", "engine, after each step; frontend, when a request ends"},

    {kSloRequests, "berth_slo_requests_total", kCounter, kClass, kSloResult, {}, "requests",
     "Requests that kept or missed what their class promises. Counted where the class has the promise and the server "
     "let the request in.", kEnd},
    {kSloObjective, "berth_slo_objective_ratio", kGauge, kClass, kNone, {}, "ratio",
     "Share of requests that are to keep what the class promises.", kReload},
    {kSloThreshold, "berth_slo_threshold_seconds", kGauge, kClass, kPromise, {}, "seconds",
     "What the class promises. Absent where it does not.", kReload},

    {kRouterWaiting, "berth_router_requests_waiting", kGauge, kServer, kNone, {}, "requests",
     "Requests that are queued or preempted, for routers.", kPlan},
    {kRouterRunning, "berth_router_requests_running", kGauge, kServer, kNone, {}, "requests",
     "Requests that run, for routers.", kPlan},
    {kRouterKvUsage, "berth_router_kv_usage_ratio", kGauge, kServer, kNone, {}, "ratio",
     "Share of the pool that is held or reserved, for routers.", kPlan},

    {kBuildInfo, "berth_build_info", kGauge, kServer, kBuild, {}, "1",
     "What runs here, as labels.", "start"},
    {kConfigInfo, "berth_config_info", kGauge, kServer, kConfig, {}, "1",
     "The policy in force, as a label.", kReload},
    {kConfigLastReloadSuccessful, "berth_config_last_reload_successful", kGauge, kServer, kNone, {}, "0 or 1",
     "Whether the policy file was taken when it was last read.", kReload},
    {kConfigLastReloadSuccessTimestamp, "berth_config_last_reload_success_timestamp_seconds", kGauge, kServer, kNone, {}, "seconds",
     "When a policy file was last taken, in Unix time.", kReload},
    {kConfigReloads, "berth_config_reloads_total", kCounter, kServer, kReloadResult, {}, "reloads",
     "How often the policy file was read again.", kReload},
    {kGrpcCallsStarted, "grpc_server_call_started_total", kCounter, kServer, kGrpcMethod, {}, "calls",
     "Calls that began.", kRpc},
    {kGrpcCallDuration, "grpc_server_call_duration_seconds", kHistogram, kServer, kGrpcCall, kCallBuckets, "seconds",
     "From the beginning of a call to its status.", kRpc},

    {kProcessCpuSeconds, "process_cpu_seconds_total", kCounter, kServer, kNone, {}, "seconds",
     "User and system CPU time of the process.", kScrape},
    {kProcessResidentMemory, "process_resident_memory_bytes", kGauge, kServer, kNone, {}, "bytes",
     "Resident memory of the process.", kScrape},
    {kProcessVirtualMemory, "process_virtual_memory_bytes", kGauge, kServer, kNone, {}, "bytes",
     "Virtual memory of the process.", kScrape},
    {kProcessVirtualMemoryMax, "process_virtual_memory_max_bytes", kGauge, kServer, kNone, {}, "bytes",
     "The most virtual memory that the process may have.", kScrape},
    {kProcessOpenFds, "process_open_fds", kGauge, kServer, kNone, {}, "files",
     "Open file descriptors of the process.", kScrape},
    {kProcessMaxFds, "process_max_fds", kGauge, kServer, kNone, {}, "files",
     "The most file descriptors that the process may open.", kScrape},
    {kProcessStartTime, "process_start_time_seconds", kGauge, kServer, kNone, {}, "seconds",
     "When the process started, in Unix time.", kScrape},
    {kProcessThreads, "process_threads", kGauge, kServer, kNone, {}, "threads",
     "Threads of the process.", kScrape},
};
// clang-format on

constexpr bool InOrder() {
  for (std::size_t i = 0; i < std::size(kTable); ++i) {
    if (kTable[i].id != static_cast<MetricId>(i)) return false;
  }
  return true;
}
static_assert(InOrder(), "one row per MetricId, in its order");
static_assert(std::size(kTable) == static_cast<std::size_t>(MetricId::kProcessThreads) + 1);

}  // namespace

bool MetricSpec::has_model_label() const { return std::string_view(name).starts_with("berth_"); }

std::span<const MetricSpec> MetricTable() { return kTable; }

}  // namespace berth
