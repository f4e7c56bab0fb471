#include "counted_run.h"

#include <cmath>

#include "fakes/page_reader.h"

namespace berth::simulation {
namespace {

TelemetryOptions Options(const KvPoolShape& pool) {
  TelemetryOptions options;
  options.model_name = "smollm2";
  options.pool = pool;
  options.wall_clock = WallClockNow;
  return options;
}

// Of every series of the family that has `label` among its labels.
double Sum(const test::Page& page, const std::string& family, const std::string& label = "") {
  double sum = 0.0;
  for (auto at = page.lower_bound(family); at != page.end() && at->first.starts_with(family); ++at) {
    const bool is_it = at->first.size() == family.size() || at->first[family.size()] == '{';
    if (is_it && at->first.find(label) != std::string::npos) sum += at->second;
  }
  return sum;
}

struct Heard {
  double ok = 0.0;
  double tokens = 0.0;
  double first_tokens = 0.0;
  double next_tokens = 0.0;
  double started = 0.0;
  double prompt_tokens = 0.0;
  double cached_tokens = 0.0;
  double preemptions = 0.0;
  double recomputed_tokens = 0.0;
  double accelerator_seconds = 0.0;
  double kv_block_seconds = 0.0;
};

Heard SumUp(std::span<const std::shared_ptr<WatchedRequest>> requests) {
  Heard heard;
  for (const auto& request : requests) {
    const Usage& usage = request->usage();
    heard.ok += request->completed() ? 1.0 : 0.0;
    heard.started += request->admitted() ? 1.0 : 0.0;
    heard.prompt_tokens += request->admitted() ? static_cast<double>(usage.prompt_tokens) : 0.0;
    heard.cached_tokens += static_cast<double>(usage.cached_tokens);
    heard.first_tokens += usage.output_tokens > 0 ? 1.0 : 0.0;
    for (const std::int64_t tokens : request->tokens_by_choice()) {
      heard.tokens += static_cast<double>(tokens);
      heard.next_tokens += static_cast<double>(std::max<std::int64_t>(0, tokens - 1));
    }
    heard.preemptions += static_cast<double>(usage.preemptions);
    heard.recomputed_tokens += static_cast<double>(usage.recomputed_tokens);
    heard.accelerator_seconds += usage.accelerator_seconds;
    heard.kv_block_seconds += usage.kv_block_seconds;
  }
  return heard;
}

}  // namespace

CountedRun::CountedRun(const KvPoolShape& pool, const Policy& policy, const Clock* clock)
    : telemetry_(Options(pool), clock) {
  OnPolicy(policy);
}

// A class that is gone takes its counters with it: here none goes.
void CountedRun::OnPolicy(const Policy& policy) {
  Policy kept = policy;
  for (ClassPolicy& c : kept.classes) c.removed = false;
  telemetry_.OnPolicy({.policy = &kept});
}

void CountedRun::OnRefusal(ClassId service_class, TenantId tenant, RefusalReason reason) {
  telemetry_.OnEnd({.service_class = service_class, .tenant = tenant, .reason = reason});
  const std::lock_guard lock(mutex_);
  ++refusals_;
}

std::string CountedRun::Violation(std::span<const std::shared_ptr<WatchedRequest>> requests) const {
  const test::Page page = test::ReadPage(telemetry_.Page());
  const Heard heard = SumUp(requests);
  const double ended = static_cast<double>(std::ssize(requests)) + static_cast<double>(refusals_);
  const double computed = Sum(page, "berth_accelerator_seconds_total") +
                          Sum(page, "berth_wasted_accelerator_seconds_total", "reason=\"recompute\"");
  struct {
    const char* what;
    double counted;
    double heard;
  } const rows[] = {
      {"requests", Sum(page, "berth_requests_total"), ended},
      {"good ends", Sum(page, "berth_requests_total", "outcome=\"ok\""), heard.ok},
      {"starts", Sum(page, "berth_e2e_request_latency_seconds_count"), heard.started},
      {"output tokens", Sum(page, "berth_output_tokens_total"), heard.tokens},
      {"first tokens", Sum(page, "berth_time_to_first_token_seconds_count"), heard.first_tokens},
      {"next tokens", Sum(page, "berth_inter_token_latency_seconds_count"), heard.next_tokens},
      {"prompt tokens", Sum(page, "berth_prompt_tokens_total"), heard.prompt_tokens},
      {"tokens found", Sum(page, "berth_prefix_cache_hits_total"), heard.cached_tokens},
      {"preemptions", Sum(page, "berth_preemptions_total"), heard.preemptions},
      {"recomputed tokens", Sum(page, "berth_recomputed_tokens_total"), heard.recomputed_tokens},
      {"busy time", Sum(page, "berth_accelerator_busy_seconds_total"), heard.accelerator_seconds},
      {"time by request", computed, heard.accelerator_seconds},
      {"the bill", Sum(page, "berth_kv_block_seconds_total", "kind=\"reserved\""), heard.kv_block_seconds},
      {"running", Sum(page, "berth_requests_running"), 0.0},
      {"queued", Sum(page, "berth_requests_queued"), 0.0},
      {"parked", Sum(page, "berth_requests_preempted"), 0.0},
      {"held blocks", Sum(page, "berth_kv_blocks", "state=\"held\""), 0.0},
      {"unspent blocks", Sum(page, "berth_kv_reserved_unspent_blocks"), 0.0},
      {"used blocks", Sum(page, "berth_class_kv_used_blocks"), 0.0},
      {"pressure", Sum(page, "berth_class_pressure_ratio"), 0.0},  // nothing is left in the sums over what waits
      {"the oldest's wait", Sum(page, "berth_queue_oldest_age_seconds"), 0.0},
  };
  for (const auto& row : rows) {
    if (std::abs(row.counted - row.heard) > 1e-6 * (1.0 + std::abs(row.heard))) {
      return std::string(row.what) + ": the metrics say " + std::to_string(row.counted) + ", the callers heard " +
             std::to_string(row.heard);
    }
  }
  return "";
}

}  // namespace berth::simulation
