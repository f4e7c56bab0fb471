// Turns what happened into the metrics of metric_table.cc, and into the usage of the last day.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "berth/clock.h"
#include "berth/kv.h"
#include "berth/metrics.h"
#include "telemetry/usage_ledger.h"

namespace berth {

struct TelemetryOptions {
  std::string model_name;
  std::string version;
  std::string revision;
  std::string backend;  // BackendInfo::name
  KvPoolShape pool;
  std::string config_hash;               // of the policy that the server starts with
  std::vector<std::string> rpc_methods;  // "berth.v1.Inference/Generate": RpcMethod is the place in this list
  std::function<UnixSeconds()> wall_clock;
};

// How a class kept what it promises, since the server started.
struct SloCount {
  std::int64_t met = 0;
  std::int64_t missed = 0;
};
struct SloCounts {
  ClassSlo promise;
  SloCount time_to_first_token;
  SloCount inter_token_latency;
  SloCount deadline;
};

// The machine's calendar time.
UnixSeconds WallClockNow();

// Thread-safe. An event takes a shared lock that is held exclusively only while a policy change moves the series, and a
// few atomic additions.
class Telemetry final : public MetricSink {
 public:
  // Unlisted tenants beyond so many are counted as `other`. (Listed ones keep their names.)
  static constexpr int kMaxUnlistedNames = 100;
  // Series of so many listed tenants are shown from the start; those of further ones, and of unlisted ones, once they
  // move. Each tenant has some forty series a class.
  static constexpr int kMaxShownTenants = 100;

  // `clock` must outlive it.
  Telemetry(const TelemetryOptions& options, const Clock* clock);
  ~Telemetry() override;

  void OnPolicy(const PolicyNames& names) override;
  void OnConfigReload(const ConfigReload& reload) override;
  void OnLoad(const LoadSnapshot& load) override;
  void OnStep(const StepRan& step) override;
  void OnTokens(std::span<const TokenCame> tokens) override;
  void OnStart(const RequestStarted& request) override;
  void OnPreemption(ClassId service_class, PreemptionMode mode) override;
  void OnKvAllocationFailure() override;
  void OnEnd(const RequestEnded& request) override;
  void OnRpcStart(RpcMethod method) override;
  void OnRpcEnd(RpcMethod method, int status, Duration duration) override;

  // The page of /metrics, as of now.
  std::string Page() const;
  const UsageLedger& usage() const;
  SloCounts Slos(ClassId service_class) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace berth
