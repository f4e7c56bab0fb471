#include "cli/serve_metrics.h"

#include <algorithm>

#include "cli/build_info.h"
#include "cli/server_log.h"
#include "frontend/rpc_methods.h"

namespace berth::cli {
namespace {

constexpr double kMillion = 1e6;

TelemetryOptions OptionsOf(const Runtime& runtime, const std::string& config_sha256) {
  TelemetryOptions options;
  options.model_name = runtime.config.model.served_name;
  options.version = kBuildVersion;
  options.revision = kBuildRevision;
  options.backend = runtime.backend->info().name;
  options.pool = runtime.pool.shape;
  options.config_hash = config_sha256.empty() ? "none" : config_sha256;
  options.rpc_methods = RpcMethodNames();
  options.wall_clock = WallClockNow;
  return options;
}

}  // namespace

std::vector<ClassSlo> SlosOf(const ServerConfig& config, const Policy& policy) {
  std::vector<ClassSlo> slos(policy.classes.size());
  for (std::size_t c = 0; c < slos.size(); ++c) {
    const auto named = [&](const ClassSettings& settings) { return settings.name == policy.classes[c].name; };
    const auto settings = std::find_if(config.classes.begin(), config.classes.end(), named);
    if (settings == config.classes.end()) continue;
    slos[c].time_to_first_token = settings->slo.time_to_first_token;
    slos[c].inter_token_latency = settings->slo.inter_token_latency;
    slos[c].objective = static_cast<double>(settings->slo.objective_millionths) / kMillion;
  }
  return slos;
}

std::vector<TenantId> UnlistedTenants(const ServerConfig& config, const Policy& policy) {
  std::vector<TenantId> unlisted;
  for (std::size_t t = 0; t < policy.tenants.size(); ++t) {
    const std::string& name = policy.tenants[t].name;
    const auto named = [&](const TenantSettings& settings) { return settings.name == name; };
    const bool listed = std::any_of(config.tenants.begin(), config.tenants.end(), named) || name == kDefaultTenant;
    if (!name.empty() && !listed) unlisted.push_back(static_cast<TenantId>(t));
  }
  return unlisted;
}

ServeMetrics::ServeMetrics(const Runtime& runtime, const std::string& config_sha256)
    : telemetry_(OptionsOf(runtime, config_sha256), &clock_), log_(&clock_, LogEvent) {
  TellPolicy(runtime.config, runtime.policy);
}

void ServeMetrics::TellPolicy(const ServerConfig& config, const Policy& policy) {
  const std::lock_guard lock(mutex_);
  config_ = config;
  TellPolicyLocked(policy);
}

void ServeMetrics::TellTenants(const Policy& policy) {
  const std::lock_guard lock(mutex_);
  TellPolicyLocked(policy);
}

void ServeMetrics::TellPolicyLocked(const Policy& policy) {
  const std::vector<ClassSlo> slos = SlosOf(config_, policy);
  const std::vector<TenantId> unlisted = UnlistedTenants(config_, policy);
  OnPolicy({.policy = &policy, .slos = slos, .unlisted = unlisted});
}

void ServeMetrics::OnPolicy(const PolicyNames& names) {
  telemetry_.OnPolicy(names);
  log_.OnPolicy(names);
}

void ServeMetrics::OnEnd(const RequestEnded& request) {
  telemetry_.OnEnd(request);
  log_.OnEnd(request);
}

}  // namespace berth::cli
