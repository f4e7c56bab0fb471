// What an operator decides, as values: classes, tenants and the limits of the scheduler. Validated whole, swapped whole
// between two plans.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "berth/clock.h"
#include "berth/units.h"

namespace berth {

inline constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max() / 4;

// What happens to a request that cannot start in the next plan.
enum class Overload : std::uint8_t {
  kReject,      // refused, with a time to come back
  kQueue,       // waits within the class's bounds
  kShedLowest,  // as kQueue; when the server's own bounds are reached, the entry of lowest priority goes
};

// What must be predicted before the deadline for a request to be let in.
enum class DeadlineRequirement : std::uint8_t { kFirstToken, kUsefulOutput, kFullOutput };

// kHold: newcomers are refused, waiting ones stay and do not start. kDrain: newcomers are refused, queued ones end,
// parked and running ones finish.
enum class ClassStop : std::uint8_t { kNone, kHold, kDrain };

struct ClassPolicy {
  std::string name;
  std::int32_t priority = 0;  // higher goes first

  std::int64_t kv_guarantee_blocks = 0;
  std::int64_t kv_borrowing_limit_blocks = 0;         // beyond the guarantee
  std::int64_t kv_lending_limit_blocks = kUnlimited;  // what others may use of the idle guarantee
  std::int64_t slot_guarantee = 0;                    // sequences
  bool preemptible = false;
  std::int32_t max_preemptions = 3;  // ≥ 1

  std::int64_t max_sequence_tokens = kUnlimited;  // prompt + output of one sequence
  std::int64_t max_output_tokens = kUnlimited;
  std::int64_t default_output_tokens = 256;  // of a request that asks for no length

  Overload overload = Overload::kQueue;
  std::int64_t max_queued_requests = 64;
  std::int64_t max_queued_tokens = kUnlimited;  // prompt + output of what waits
  Duration max_wait = std::chrono::seconds(60);

  std::optional<Duration> default_timeout;  // of a request that names none; counts from its arrival
  DeadlineRequirement require = DeadlineRequirement::kFirstToken;
  std::int64_t useful_tokens = 16;  // for kUsefulOutput
  std::optional<Duration> inter_token_slo;
  double prefill_min_share = 0.0;  // of a step's token budget, [0, 1]
  ClassStop stop = ClassStop::kNone;
  std::vector<std::string> objectives;  // names by which gateways ask for the class
  bool removed = false;  // gone from the policy; keeps its index, has and borrows nothing, and what runs of it finishes

  std::int64_t ceiling_blocks() const { return kv_guarantee_blocks + kv_borrowing_limit_blocks; }
};

struct TenantPolicy {
  std::string name;                                   // empty = a spare place, for a tenant that is not listed
  double weight = 1.0;                                // > 0
  std::optional<std::vector<ClassId>> classes;        // allowed; absent = all
  std::int64_t max_concurrent_requests = kUnlimited;  // queued + parked + running
  std::int64_t max_kv_blocks = kUnlimited;            // reserved by its running requests
  std::optional<double> tokens_per_minute;
  double burst_tokens = 0.0;
};

struct Policy {
  std::vector<ClassPolicy> classes;
  std::vector<TenantPolicy> tenants;
  ClassId default_class = 0;    // of a request that names none
  TenantId default_tenant = 0;  // of a caller that names none
  std::int64_t max_running_sequences = 64;
  std::int64_t max_batched_tokens = 2048;
  // Bound all queues together; used by kShedLowest.
  std::int64_t max_queued_requests = kUnlimited;
  std::int64_t max_queued_tokens = kUnlimited;
};

}  // namespace berth
