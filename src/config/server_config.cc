#include "config/server_config.h"

namespace berth {

std::vector<ClassSettings> DefaultClasses() {
  ClassSettings interactive;
  interactive.name = "interactive";
  interactive.priority = 100;
  interactive.kv_guarantee = PercentOf(60);
  interactive.max_sequence_tokens = 4096;
  interactive.max_output_tokens = 1024;
  interactive.overload = Overload::kReject;
  interactive.queue = {64, 65536, std::chrono::seconds(2)};
  interactive.slo.time_to_first_token = std::chrono::seconds(1);
  interactive.slo.inter_token_latency = std::chrono::milliseconds(200);

  ClassSettings batch;
  batch.name = "batch";
  batch.priority = 10;
  batch.kv_guarantee = PercentOf(20);
  batch.kv_borrowing_limit = PercentOf(80);
  batch.preemptible = true;
  batch.prefill_min_share_millionths = kWholeMillionths / 10;
  return {interactive, batch};
}

std::vector<TenantSettings> DefaultTenants() {
  TenantSettings tenant;
  tenant.name = kDefaultTenant;
  return {tenant};
}

ServerConfig LocalConfig(std::optional<std::int32_t> max_contexts) {
  ClassSettings local;
  local.name = "local";
  local.kv_guarantee = PercentOf(100);
  local.queue.max_requests = 1 << 20;
  local.queue.max_wait = std::chrono::hours(24 * 365);
  ServerConfig config;
  config.classes = {local};
  config.default_class = local.name;
  config.kv_cache.auto_max_contexts = max_contexts;
  config.scheduler.calibration_steps = 0;
  config.max_unlisted_tenants = 0;
  return config;
}

}  // namespace berth
