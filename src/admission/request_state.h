// What admission remembers of one live request.
#pragma once

#include <cstdint>

#include "admission/ledger.h"
#include "berth/admission.h"
#include "berth/clock.h"

namespace berth {

struct RequestState {
  enum class Phase : std::uint8_t { kQueued, kParked, kRunning };

  AdmissionRequest request;
  Phase phase = Phase::kQueued;
  std::int32_t live_choices = 1;

  // Attached to the ledger exactly while running. While waiting it may be prepared for one plan: blocks, slots and
  // hits.
  LedgerEntry entry;
  std::int64_t prepared_plan = -1;

  std::int64_t worst_blocks = 0;       // as it arrived
  double waiting_block_seconds = 0.0;  // its share in the sums of what waits
  std::int64_t tokens_to_compute = 0;  // while waiting: before it draws its next token, nothing cached
  bool sheddable = false;              // listed among what may be shed

  std::int64_t started_plan = -1;
  std::int64_t end_step = 0;         // running: the plan number by which it has ended at the latest
  bool started_preemptible = false;  // its class's word at its last start
  std::int32_t running_index = -1;   // in its class's list of running requests

  std::int32_t preemptions = 0;
  std::int32_t max_preemptions = 1;  // its class's word at its first start
  bool is_protected = false;
  std::int64_t parked_plan = -1;
  TimePoint parked_since{};
  Duration parked_total{};  // of earlier parkings

  double rate_tokens = 0.0;            // charged to its tenant's token rate when it was taken in
  double charged_block_seconds = 0.0;  // to the tenant's counter, for the current run
  double used_block_seconds = 0.0;     // of the current run, up to used_since
  TimePoint used_since{};

  TimePoint expiry = kNoDeadline;  // as entered in the list of expiries
  bool ending = false;             // cancelled, or can never start: ends in the next plan
  RefusalReason ending_reason = RefusalReason::kCancelledByClient;
  TimePoint useful_at{};             // with kDeadlineInfeasible: the earliest time at which it could have been useful
  std::int64_t computed_tokens = 0;  // and what was computed of it until then
};

}  // namespace berth
