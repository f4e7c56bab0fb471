#include "cli/serve_policy.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "admission/policy_check.h"
#include "cli/output.h"
#include "config/carry_over.h"

namespace berth::cli {
namespace {

constexpr std::size_t kMostChangesLogged = 50;

absl::Status NotServed(const std::string& key, const std::string& why) {
  return absl::UnimplementedError(key + ": " + why);
}

void LogReload(const ReloadReport& report) {
  for (const std::string& finding : report.findings) {
    report.ok ? spdlog::warn("{}", OneLine(finding)) : spdlog::error("{}", OneLine(finding));
  }
  if (!report.ok) {
    spdlog::error("policy not reloaded: {}", OneLine(report.error));
    return;
  }
  spdlog::info("policy reloaded: {} changes, sha256 {}", report.changes.size(), report.sha256);
  for (std::size_t i = 0; i < std::min(report.changes.size(), kMostChangesLogged); ++i) {
    spdlog::info("policy change: {}", OneLine(FormatChange(report.changes[i])));
  }
}

PolicyReloader::Options ReloaderOptions(std::string path, const PolicyContext& context) {
  PolicyReloader::Options options;
  options.path = std::move(path);
  options.context = context;
  return options;
}

}  // namespace

absl::StatusOr<PolicyFile> ReadServerConfig(const std::string& path, const ConfigFlags& flags, Diagnostics* findings) {
  PolicyFile file;
  if (!path.empty()) file = ReadPolicyFile(path, Severity::kError, findings);
  if (!findings->ok()) return absl::InvalidArgumentError(path + ": " + findings->Summary());
  flags.Apply(&file.config);
  if (absl::Status served = CheckServed(file.config); !served.ok()) return served;
  return file;
}

absl::Status CheckServed(const ServerConfig& config) {
  const ServerSettings& server = config.server;
  if (!server.tls.certificate.empty() || !server.tls.client_ca.empty()) {
    return NotServed("server.tls", "TLS is not served yet; take it out, or put a proxy that has it in front");
  }
  if (!server.admin_subjects.empty() || !server.trusted_identity.subjects.empty() ||
      !server.trusted_identity.key_ids.empty()) {
    return NotServed("server", "admin_subjects and trusted_identity are not served yet; take them out");
  }
  for (const TenantSettings& tenant : config.tenants) {
    if (!tenant.has_credentials()) continue;
    return NotServed("tenants." + tenant.name,
                     "credentials are not checked yet, so anybody could call as this tenant; take them out");
  }
  return absl::OkStatus();
}

ServedPolicy::ServedPolicy(PolicyFile file, std::string path, ConfigFlags flags, Runtime* runtime,
                           ServeMetrics* metrics, std::atomic<Duration>* drain_timeout)
    : runtime_(runtime),
      metrics_(metrics),
      drain_timeout_(drain_timeout),
      running_sha256_(file.sha256),
      watch_(file.config.reload == ReloadMode::kWatch),
      reloader_(
          ReloaderOptions(std::move(path), runtime->policy_context), std::move(file),
          [flags = std::move(flags)](ServerConfig* config) { flags.Apply(config); },
          [this](const ServerConfig& config, const Policy& policy) { return Apply(config, policy); },
          [this](const ReloadReport& report) { Tell(report); }) {}

absl::Status ServedPolicy::Apply(const ServerConfig& config, const Policy& policy) {
  if (absl::Status served = CheckServed(config); !served.ok()) return served;
  const std::int64_t started_with = runtime_->config.scheduler.max_batched_tokens;
  if (policy.max_batched_tokens > started_with) {
    return absl::FailedPreconditionError("scheduler.max_batched_tokens: the server was started for steps of " +
                                         std::to_string(started_with) +
                                         " tokens, and more takes a restart; lower it, or restart the server");
  }
  Policy next = CarryOver(*runtime_->engine->policy(), policy);
  if (absl::Status valid = ValidatePolicy(next, runtime_->policy_context.pool); !valid.ok()) return valid;
  // The engine names nobody that the metrics do not know.
  metrics_->TellPolicy(config, next);
  runtime_->engine->SetPolicy(std::move(next));
  *drain_timeout_ = config.server.drain_timeout;
  return absl::OkStatus();
}

void ServedPolicy::Tell(const ReloadReport& report) {
  if (report.ok) running_sha256_ = report.sha256;
  metrics_->OnConfigReload({.successful = report.ok, .hash = running_sha256_});
  LogReload(report);
}

}  // namespace berth::cli
