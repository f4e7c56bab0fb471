// What happened, as values: the engine and the frontend tell a MetricSink, which knows the metrics' names (the table in
// src/telemetry/metric_table.cc). Classes and tenants are told by index.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "berth/admission.h"
#include "berth/clock.h"
#include "berth/event.h"
#include "berth/policy.h"
#include "berth/units.h"

namespace berth {

// A request that was refused before its class or tenant was known has these.
inline constexpr ClassId kNoClass = -1;
inline constexpr TenantId kNoTenant = -1;

// How a request ended, in few words.
enum class RequestOutcome : std::uint8_t {
  kOk,
  kRejected,
  kShed,
  kQueueTimeout,
  kDeadline,
  kCancelled,
  kError,
};

constexpr const char* RequestOutcomeName(RequestOutcome outcome) {
  constexpr const char* kNames[] = {"ok", "rejected", "shed", "queue_timeout", "deadline", "cancelled", "error"};
  return kNames[static_cast<std::size_t>(outcome)];
}

// `started` = it held blocks at some time. A reason that is not listed stands for a refusal: it is an error where it
// ends a request that had started.
constexpr RequestOutcome OutcomeOf(std::string_view reason_name, bool started) {
  struct Row {
    std::string_view reason;
    RequestOutcome outcome;
  };
  constexpr Row kRows[] = {
      {"SHED", RequestOutcome::kShed},
      {"QUEUE_TIMEOUT", RequestOutcome::kQueueTimeout},
      {"DEADLINE_EXCEEDED", RequestOutcome::kDeadline},
      {"DEADLINE_INFEASIBLE", RequestOutcome::kDeadline},
      {"CANCELLED_BY_CLIENT", RequestOutcome::kCancelled},
      {"CANCELLED_BY_OPERATOR", RequestOutcome::kCancelled},
      {"SLOW_READER", RequestOutcome::kCancelled},
      {"BACKEND_FAULT", RequestOutcome::kError},
      {"PREEMPTED_TOO_OFTEN", RequestOutcome::kError},
      {"DRAIN_TIMEOUT", RequestOutcome::kError},
  };
  for (const Row& row : kRows) {
    if (row.reason == reason_name) return row.outcome;
  }
  return started ? RequestOutcome::kError : RequestOutcome::kRejected;
}
constexpr RequestOutcome OutcomeOf(RefusalReason reason, bool started) {
  return OutcomeOf(std::string_view(RefusalReasonName(reason)), started);
}

constexpr const char* FinishReasonName(FinishReason reason) {
  constexpr const char* kNames[] = {"STOP_TOKEN", "STOP_STRING", "LENGTH", "DEADLINE"};
  return kNames[static_cast<std::size_t>(reason)];
}

// What a class promises its callers.
struct ClassSlo {
  std::optional<Duration> time_to_first_token = {};
  std::optional<Duration> inter_token_latency = {};  // of a request: the mean over its tokens
  double objective = 0.99;                           // share of requests that keep them, (0, 1)
};

// Who may be named from now on.
struct PolicyNames {
  const Policy* policy = nullptr;           // copied
  std::span<const ClassSlo> slos = {};      // by ClassId; classes beyond its end promise nothing
  std::span<const TenantId> unlisted = {};  // tenants of `policy` that the policy file does not list
};

// A policy file was read again, whether or not it was taken.
struct ConfigReload {
  bool successful = false;
  std::string hash = {};  // of the policy in force afterwards
};

// A class as of the last plan.
struct ClassSnapshot {
  std::int64_t running_requests = 0;
  std::int64_t queued_requests = 0;
  std::int64_t parked_requests = 0;
  // Since when the first to have come waits: queued since its arrival, parked since it was preempted. None = nobody.
  std::optional<TimePoint> waiting_since = {};

  // As the ledger charges the class: blocks it holds and what its requests may still take.
  std::int64_t used_blocks = 0;
  std::int64_t debt_blocks = 0;
  std::int64_t used_slots = 0;
  std::int64_t reach_blocks = 0;  // the most it could have with nobody else there
  std::int64_t reach_slots = 0;
  // What waits, queued and parked, would take: worst-case blocks, and slots.
  std::int64_t waiting_blocks = 0;
  std::int64_t waiting_slots = 0;
  // Tokens that the class's requests, running and waiting, could compute in the next step were it theirs alone: one for
  // each decoding sequence, and of each prompt what is left of it, at most one whole step. Of what waits nobody knows
  // yet what will be found in the cache: it counts whole.
  std::int64_t wanted_step_tokens = 0;
  // Its first waiting request fits the guarantee in both resources, and the last plan did not start it. Never, but for
  // what a policy change left in debt.
  bool guarantee_unmet = false;
};

struct TenantQueue {
  ClassId service_class = 0;
  TenantId tenant = 0;
  std::int64_t queued_requests = 0;
};

// How much is going on.
struct LoadSnapshot {
  // Blocks: these three are all of the pool. Cached ones are free, and hold what may be found again.
  std::int64_t free_blocks = 0;
  std::int64_t cached_blocks = 0;
  std::int64_t held_blocks = 0;
  std::int64_t unspent_blocks = 0;  // reserved, and not held yet
  std::int64_t used_slots = 0;
  std::int64_t max_slots = 0;
  std::int64_t step_token_budget = 0;  // tokens that one step may compute
  std::vector<ClassSnapshot> classes;  // by ClassId
  std::vector<TenantQueue> queued;     // every pair with somebody in its queue, once; in any order

  std::int64_t pool_blocks() const { return free_blocks + cached_blocks + held_blocks; }
  std::int64_t reserved_blocks() const { return held_blocks + unspent_blocks; }
  // Of all classes.
  std::int64_t running_requests() const { return Sum(&ClassSnapshot::running_requests); }
  std::int64_t queued_requests() const { return Sum(&ClassSnapshot::queued_requests); }
  std::int64_t parked_requests() const { return Sum(&ClassSnapshot::parked_requests); }

 private:
  std::int64_t Sum(std::int64_t ClassSnapshot::*field) const {
    std::int64_t sum = 0;
    for (const ClassSnapshot& c : classes) sum += c.*field;
    return sum;
  }
};

// Admitted and queued demand ÷ capacity, by resource: 1 = full, above it somebody waits. Of one class: of what it could
// reach; its compute is measured against a whole step, however many share it.
struct Pressure {
  double kv = 0.0;
  double slots = 0.0;
  double compute = 0.0;

  double highest() const { return std::max({kv, slots, compute}); }
};

inline double PressureRatio(std::int64_t demand, std::int64_t capacity) {
  return static_cast<double>(demand) / static_cast<double>(std::max<std::int64_t>(1, capacity));
}
inline Pressure PressureOf(const ClassSnapshot& c, const LoadSnapshot& load) {
  return {.kv = PressureRatio(c.used_blocks + c.waiting_blocks, c.reach_blocks),
          .slots = PressureRatio(c.used_slots + c.waiting_slots, c.reach_slots),
          .compute = PressureRatio(c.wanted_step_tokens, load.step_token_budget)};
}
// Of the whole server: what to scale on.
inline Pressure PressureOf(const LoadSnapshot& load) {
  std::int64_t blocks = load.reserved_blocks();
  std::int64_t slots = load.used_slots;
  std::int64_t tokens = 0;
  for (const ClassSnapshot& c : load.classes) {
    blocks += c.waiting_blocks;
    slots += c.waiting_slots;
    tokens += c.wanted_step_tokens;
  }
  return {.kv = PressureRatio(blocks, load.pool_blocks()),
          .slots = PressureRatio(slots, load.max_slots),
          .compute = PressureRatio(tokens, load.step_token_budget)};
}
// The share of the pool that nobody else can have: held blocks and reserved ones. What a router must see.
inline double CommittedRatio(const LoadSnapshot& load) {
  return PressureRatio(load.reserved_blocks(), load.pool_blocks());
}

enum class StepPhase : std::uint8_t { kPrefill, kDecode };

// One request's part of a step.
struct StepPart {
  ClassId service_class = 0;
  TenantId tenant = 0;
  StepPhase phase = StepPhase::kDecode;
  Duration time{};            // its share of the step's busy time
  Duration recompute_time{};  // of `time`: spent on tokens that a preemption had lost
  std::int64_t recomputed_tokens = 0;
};

// A step that succeeded.
struct StepRan {
  Duration busy{};
  // From the end of the step before it to its own submission. None where nothing could have run in between.
  std::optional<Duration> host_gap = {};
  std::span<const StepPart> parts = {};  // their times sum to `busy`
};

// A token that the caller gets to see.
struct TokenCame {
  enum class Kind : std::uint8_t {
    kFirstOfRequest,  // `after` = since the request's arrival
    kFirstOfChoice,   // of another choice; `after` is not used
    kNext,            // `after` = since the choice's last token, a preemption in between included
  };
  ClassId service_class = 0;
  TenantId tenant = 0;
  Kind kind = Kind::kNext;
  Duration after{};
};

// A request got its blocks, for the first time.
struct RequestStarted {
  ClassId service_class = 0;
  TenantId tenant = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t looked_up_tokens = 0;  // of the prompt, in the prefix cache; 0 where it takes no hits
  std::int64_t cached_tokens = 0;     // found there
};

struct RequestEnded {
  std::string_view request_id = {};
  std::string_view trace_id = {};  // of the caller's `traceparent`; empty = none
  ClassId service_class = kNoClass;
  TenantId tenant = kNoTenant;
  // A good end's reason is that of the choice that ended last.
  std::variant<FinishReason, RefusalReason> reason = RefusalReason::kInvalidRequest;
  bool started = false;   // it held blocks at some time
  Usage usage = {};       // all zero but for the wait where it never started
  Duration total_time{};  // from arrival
  std::int32_t choices = 1;
  // Whether what its class requires was there before its deadline. None where it had no deadline, or was refused before
  // anyone looked at it, or was cancelled before.
  std::optional<bool> met_deadline = {};
};

enum class PreemptionMode : std::uint8_t { kRecompute, kSwap };

// A gRPC method, by its place in the list of methods that the sink was made with.
using RpcMethod = std::int32_t;

// Any thread, also several at once. No call waits for long (locks inside are held for as long as a page of counters
// takes to copy), none calls back, and OnLoad, OnStep and OnTokens allocate nothing once they have seen as many
// classes, queues and tokens before.
class MetricSink {
 public:
  virtual ~MetricSink() = default;

  // Before anything else names one of its classes or tenants: at the start, and before the engine gets the new policy.
  // Indices keep their meaning as long as anything of theirs lives.
  virtual void OnPolicy(const PolicyNames& names) = 0;
  virtual void OnConfigReload(const ConfigReload& reload) = 0;

  // The engine: after each plan, and when somebody comes or goes between two plans.
  virtual void OnLoad(const LoadSnapshot& load) = 0;
  // After each step, once the next one is submitted.
  virtual void OnStep(const StepRan& step) = 0;
  virtual void OnTokens(std::span<const TokenCame> tokens) = 0;
  virtual void OnStart(const RequestStarted& request) = 0;
  virtual void OnPreemption(ClassId service_class, PreemptionMode mode) = 0;
  // Blocks that were wanted and not there: a swap that found no room in the host's memory. A reservation is always
  // kept.
  virtual void OnKvAllocationFailure() = 0;

  // Once for every Generate and GenerateStream: the frontend, from the request's last event, just before its status
  // goes out. A slow reader is told its status past what is stuck, and counted when the engine has let go of its
  // request.
  virtual void OnEnd(const RequestEnded& request) = 0;
  // The frontend, for every call. `status` is gRPC's code.
  virtual void OnRpcStart(RpcMethod method) = 0;
  virtual void OnRpcEnd(RpcMethod method, int status, Duration duration) = 0;
};

// Where nobody counts.
class NullMetricSink final : public MetricSink {
 public:
  void OnPolicy(const PolicyNames&) override {}
  void OnConfigReload(const ConfigReload&) override {}
  void OnLoad(const LoadSnapshot&) override {}
  void OnStep(const StepRan&) override {}
  void OnTokens(std::span<const TokenCame>) override {}
  void OnStart(const RequestStarted&) override {}
  void OnPreemption(ClassId, PreemptionMode) override {}
  void OnKvAllocationFailure() override {}
  void OnEnd(const RequestEnded&) override {}
  void OnRpcStart(RpcMethod) override {}
  void OnRpcEnd(RpcMethod, int, Duration) override {}
};

// One such sink, for whoever must have a sink and was given none.
inline MetricSink* NoMetrics() {
  static NullMetricSink sink;
  return &sink;
}

}  // namespace berth
