// The policy of a running server: read at start, taken in again when its file changes.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/flags.h"
#include "cli/live_policy.h"
#include "cli/runtime.h"
#include "config/policy_file.h"
#include "config/policy_reloader.h"

namespace berth::cli {

// The configuration that `path` (empty = the defaults) and the flags over it give. Findings are told to `findings`; an
// error where one is an error.
absl::StatusOr<PolicyFile> ReadServerConfig(const std::string& path, const ConfigFlags& flags, Diagnostics* findings);

// Says which key of the configuration promises what this server does not do yet, where it would be unsafe to go on as
// if it did.
absl::Status CheckServed(const ServerConfig& config);

// How a server ends: for so long it takes newcomers still, then what runs may go on for so long.
struct DrainTimes {
  std::atomic<Duration> delay;
  std::atomic<Duration> timeout;
};

// Keeps the engine to the policy file and logs what happens. `drain` follows it. The pointers must outlive it.
class ServedPolicy {
 public:
  ServedPolicy(PolicyFile file, std::string path, ConfigFlags flags, const Runtime* runtime, LivePolicy* live,
               DrainTimes* drain);

  absl::Status Start() { return reloader_.Start(watch_); }
  // For SIGHUP.
  void RequestReload() { reloader_.RequestReload(); }
  // Now. Thread-safe.
  ReloadReport Reload(const ReloadRequest& request) { return reloader_.Reload(request); }
  // Of the file in force. Thread-safe.
  std::string sha256() const { return reloader_.running_sha256(); }

 private:
  absl::Status Apply(const ServerConfig& config, const Policy& policy);

  LivePolicy* const live_;
  DrainTimes* const drain_;
  const bool watch_;
  PolicyReloader reloader_;  // last: its thread uses the rest
};

}  // namespace berth::cli
