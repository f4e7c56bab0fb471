// The policy of a running server: read at start, taken in again when its file changes.
#pragma once

#include <atomic>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/flags.h"
#include "cli/live_policy.h"
#include "cli/runtime.h"
#include "cli/serve_drain.h"
#include "cli/serve_metrics.h"
#include "config/policy_file.h"
#include "config/policy_reloader.h"
#include "frontend/admin_server.h"
#include "frontend/server.h"

namespace berth::cli {

// The configuration that `path` (empty = the defaults) and the flags over it give. Findings are told to `findings`; an
// error where one is an error.
absl::StatusOr<PolicyFile> ReadServerConfig(const std::string& path, const ConfigFlags& flags, Diagnostics* findings);

// Whose credentials the configuration takes.
IdentityOptions IdentityOf(const ServerConfig& config);
// Of what is served only what the configuration says: not the model, and nobody who counts.
FrontendOptions FrontendOptionsOf(const ServerConfig& config);
// What protects the server, in a line.
std::string DescribeSecurity(const ServerConfig& config);

// What follows the policy file; all of it outlives the reloader.
struct PolicyFollowers {
  LivePolicy* policy = nullptr;
  GrpcServer* server = nullptr;
  ServeMetrics* metrics = nullptr;
  DrainTimes* drain = nullptr;
};

// Keeps a server to the policy file, the key files and those of TLS, and tells log and metrics what happens.
class ServedPolicy {
 public:
  ServedPolicy(PolicyFile file, std::string path, ConfigFlags flags, const Runtime& runtime,
               const PolicyFollowers& followers);

  // The operators' server, which needs this object to be made: its certificate follows from then on.
  void SetAdmin(AdminServer* admin) { admin_ = admin; }
  absl::Status Start() { return reloader_.Start(watch_); }
  // For SIGHUP.
  void RequestReload() { reloader_.RequestReload(); }
  // Now. Thread-safe.
  ReloadReport Reload(const ReloadRequest& request) { return reloader_.Reload(request); }
  // Of the file in force. Thread-safe.
  std::string sha256() const { return reloader_.running_sha256(); }

 private:
  absl::Status Apply(const ServerConfig& config, const Policy& policy);
  void Tell(const ReloadReport& report);

  void SetTls(const TlsPem& tls);

  const PolicyFollowers followers_;
  std::atomic<AdminServer*> admin_ = nullptr;
  TlsPem tls_;                  // the server's now; touched by reloads alone
  std::string running_sha256_;  // the reloads', which never overlap
  const bool watch_;
  PolicyReloader reloader_;  // last: its thread uses the rest
};

}  // namespace berth::cli
