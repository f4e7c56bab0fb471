// What a running server tells of itself: the metrics, the usage, and the log's line for each request.
#pragma once

#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "berth/clock.h"
#include "berth/metrics.h"
#include "cli/request_log.h"
#include "cli/runtime.h"
#include "config/server_config.h"
#include "telemetry/telemetry.h"

namespace berth::cli {

// What the classes of `policy` promise, by ClassId; those that the configuration does not have promise nothing.
std::vector<ClassSlo> SlosOf(const ServerConfig& config, const Policy& policy);
// The tenants of `policy` that have a name and are not in the configuration.
std::vector<TenantId> UnlistedTenants(const ServerConfig& config, const Policy& policy);

// The frontend's sink: the telemetry, and of each end the log as well. The engine may tell the telemetry directly.
class ServeMetrics final : public MetricSink {
 public:
  // Knows the runtime's policy from the start. `config_sha256`: of the policy file; empty = there is none. The runtime
  // needs no engine yet.
  ServeMetrics(const Runtime& runtime, const std::string& config_sha256);

  Telemetry& telemetry() { return telemetry_; }

  // `policy`, made of `config`, is about to be given to the engine.
  void TellPolicy(const ServerConfig& config, const Policy& policy);
  // The configuration stays, and tenants got names.
  void TellTenants(const Policy& policy);

  void OnPolicy(const PolicyNames& names) override;
  void OnConfigReload(const ConfigReload& reload) override { telemetry_.OnConfigReload(reload); }
  void OnLoad(const LoadSnapshot& load) override { telemetry_.OnLoad(load); }
  void OnStep(const StepRan& step) override { telemetry_.OnStep(step); }
  void OnTokens(std::span<const TokenCame> tokens) override { telemetry_.OnTokens(tokens); }
  void OnStart(const RequestStarted& request) override { telemetry_.OnStart(request); }
  void OnPreemption(ClassId service_class, PreemptionMode mode) override {
    telemetry_.OnPreemption(service_class, mode);
  }
  void OnKvAllocationFailure() override { telemetry_.OnKvAllocationFailure(); }
  void OnEnd(const RequestEnded& request) override;
  void OnRpcStart(RpcMethod method) override { telemetry_.OnRpcStart(method); }
  void OnRpcEnd(RpcMethod method, int status, Duration duration) override {
    telemetry_.OnRpcEnd(method, status, duration);
  }

 private:
  void TellPolicyLocked(const Policy& policy);

  std::mutex mutex_;
  ServerConfig config_;  // guarded by mutex_
  const SteadyClock clock_;
  Telemetry telemetry_;
  RequestLog log_;
};

}  // namespace berth::cli
