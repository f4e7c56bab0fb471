#include "config/policy_settings.h"

#include <algorithm>
#include <cmath>

namespace berth {

std::vector<ClassSettings> ServerClasses() {
  ClassSettings interactive;
  interactive.name = "interactive";
  interactive.priority = 100;
  interactive.kv_guarantee = 0.6;
  interactive.max_sequence_tokens = 4096;
  interactive.max_output_tokens = 1024;
  interactive.overload = Overload::kReject;
  interactive.max_queued_tokens = 65536;
  interactive.max_wait = std::chrono::seconds(2);
  interactive.inter_token_slo = std::chrono::milliseconds(200);

  ClassSettings batch;
  batch.name = "batch";
  batch.priority = 10;
  batch.kv_guarantee = 0.2;
  batch.kv_borrowing_limit = 0.8;
  batch.preemptible = true;
  return {interactive, batch};
}

std::vector<ClassSettings> LocalClasses() {
  ClassSettings local;
  local.name = "local";
  local.kv_guarantee = 1.0;
  local.max_queued_requests = 1 << 20;
  local.max_wait = std::chrono::hours(24 * 365);
  return {local};
}

Policy ResolvePolicy(const ServerConfig& config, const KvPoolShape& pool, std::int32_t max_context_tokens) {
  Policy policy;
  const double blocks = pool.num_blocks;
  for (const ClassSettings& in : config.classes) {
    ClassPolicy& out = policy.classes.emplace_back();
    out.name = in.name;
    out.priority = in.priority;
    out.kv_guarantee_blocks = static_cast<std::int64_t>(std::floor(in.kv_guarantee * blocks));
    out.kv_borrowing_limit_blocks = std::min(static_cast<std::int64_t>(std::ceil(in.kv_borrowing_limit * blocks)),
                                             pool.num_blocks - out.kv_guarantee_blocks);
    out.preemptible = in.preemptible;
    out.max_preemptions = in.max_preemptions;
    out.max_sequence_tokens = std::min(in.max_sequence_tokens.value_or(max_context_tokens), max_context_tokens);
    if (in.max_output_tokens.has_value()) out.max_output_tokens = *in.max_output_tokens;
    out.overload = in.overload;
    out.max_queued_requests = in.max_queued_requests;
    if (in.max_queued_tokens.has_value()) out.max_queued_tokens = *in.max_queued_tokens;
    out.max_wait = in.max_wait;
    out.inter_token_slo = in.inter_token_slo;
  }
  policy.tenants.emplace_back().name = kDefaultTenant;
  policy.max_running_sequences = config.scheduler.max_running_sequences;
  policy.max_batched_tokens = config.scheduler.max_batched_tokens;
  return policy;
}

}  // namespace berth
