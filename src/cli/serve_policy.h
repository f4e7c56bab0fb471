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
#include "config/policy_file.h"
#include "config/policy_reloader.h"
#include "frontend/server.h"

namespace berth::cli {

// The configuration that `path` (empty = the defaults) and the flags over it give. Findings are told to `findings`; an
// error where one is an error.
absl::StatusOr<PolicyFile> ReadServerConfig(const std::string& path, const ConfigFlags& flags, Diagnostics* findings);

// Whose credentials the configuration takes.
IdentityOptions IdentityOf(const ServerConfig& config);
// What protects the server, in a line.
std::string DescribeSecurity(const ServerConfig& config);

// Keeps the runtime's engine and the server to the policy file, the key files and those of TLS, and logs what happens.
// `drain_timeout` follows it. What the pointers lead to must outlive the reloader.
class ServedPolicy {
 public:
  ServedPolicy(PolicyFile file, std::string path, ConfigFlags flags, Runtime* runtime, GrpcServer* server,
               std::atomic<Duration>* drain_timeout);

  absl::Status Start() { return reloader_.Start(watch_); }
  // For SIGHUP.
  void RequestReload() { reloader_.RequestReload(); }

 private:
  absl::Status Apply(const ServerConfig& config, const Policy& policy);

  Runtime* const runtime_;
  GrpcServer* const server_;
  TlsPem tls_;  // the server's now; touched by reloads alone
  std::atomic<Duration>* const drain_timeout_;
  const bool watch_;
  PolicyReloader reloader_;  // last: its thread uses the rest
};

}  // namespace berth::cli
