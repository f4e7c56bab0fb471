// The policy of a running server: read at start, taken in again when its file changes.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/flags.h"
#include "cli/runtime.h"
#include "cli/serve_metrics.h"
#include "config/policy_file.h"
#include "config/policy_reloader.h"

namespace berth::cli {

// The configuration that `path` (empty = the defaults) and the flags over it give. Findings are told to `findings`; an
// error where one is an error.
absl::StatusOr<PolicyFile> ReadServerConfig(const std::string& path, const ConfigFlags& flags, Diagnostics* findings);

// Says which key of the configuration promises what this server does not do yet, where it would be unsafe to go on as
// if it did.
absl::Status CheckServed(const ServerConfig& config);

// Keeps the runtime's engine to the policy file, and tells log and metrics what happens. `drain_timeout` follows it.
// The runtime, the metrics and `drain_timeout` must outlive the reloader.
class ServedPolicy {
 public:
  ServedPolicy(PolicyFile file, std::string path, ConfigFlags flags, Runtime* runtime, ServeMetrics* metrics,
               std::atomic<Duration>* drain_timeout);

  absl::Status Start() { return reloader_.Start(watch_); }
  // For SIGHUP.
  void RequestReload() { reloader_.RequestReload(); }

 private:
  absl::Status Apply(const ServerConfig& config, const Policy& policy);
  void Tell(const ReloadReport& report);

  Runtime* const runtime_;
  ServeMetrics* const metrics_;
  std::atomic<Duration>* const drain_timeout_;
  std::string running_sha256_;  // the reloads', which never overlap
  const bool watch_;
  PolicyReloader reloader_;  // last: its thread uses the rest
};

}  // namespace berth::cli
