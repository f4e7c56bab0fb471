#include "cli/serve_policy.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "admission/policy_check.h"
#include "cli/output.h"
#include "config/carry_over.h"

namespace berth::cli {
namespace {

constexpr std::size_t kMostChangesLogged = 50;

// However long a step takes, a reload does not wait longer for the engine to take the policy in.
constexpr Duration kMostAdoptionTime = std::chrono::seconds(5);

// Returns when the engine has another policy than `before`.
void AwaitAdoption(const Engine& engine, const std::shared_ptr<const Policy>& before) {
  const TimePoint end = std::chrono::steady_clock::now() + kMostAdoptionTime;
  while (engine.policy() == before && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
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
  return file;
}

IdentityOptions IdentityOf(const ServerConfig& config) {
  IdentityOptions options;
  for (const TenantSettings& tenant : config.tenants) {
    for (const ApiKeySettings& key : tenant.api_keys) {
      options.api_keys.push_back({key.id, key.sha256, tenant.name, key.admin});
    }
    for (const std::string& subject : tenant.subjects) options.subjects.push_back({subject, tenant.name});
  }
  options.trusted_key_ids = config.server.trusted_identity.key_ids;
  options.trusted_subjects = config.server.trusted_identity.subjects;
  options.admin_subjects = config.server.admin_subjects;
  return options;
}

std::string DescribeSecurity(const ServerConfig& config) {
  const IdentityOptions identity = IdentityOf(config);
  const TlsSettings& tls = config.server.tls;
  std::string text = tls.certificate.empty() ? "no TLS"
                     : tls.client_ca.empty() ? "TLS"
                                             : "TLS with client certificates";
  if (!IdentityTable(identity).needs_credentials())
    return text + "; no credentials: callers are whom they say they are";
  return text + "; " + GroupDigits(std::ssize(identity.api_keys)) + " API keys, " +
         GroupDigits(std::ssize(identity.subjects)) + " certificate subjects";
}

ServedPolicy::ServedPolicy(PolicyFile file, std::string path, ConfigFlags flags, Runtime* runtime, GrpcServer* server,
                           std::atomic<Duration>* drain_timeout)
    : runtime_(runtime),
      server_(server),
      tls_(file.config.server.tls.pem),
      drain_timeout_(drain_timeout),
      watch_(file.config.reload == ReloadMode::kWatch),
      reloader_(
          ReloaderOptions(std::move(path), runtime->policy_context), std::move(file),
          [flags = std::move(flags)](ServerConfig* config) { flags.Apply(config); },
          [this](const ServerConfig& config, const Policy& policy) { return Apply(config, policy); }, LogReload) {}

absl::Status ServedPolicy::Apply(const ServerConfig& config, const Policy& policy) {
  const std::int64_t started_with = runtime_->config.scheduler.max_batched_tokens;
  if (policy.max_batched_tokens > started_with) {
    return absl::FailedPreconditionError("scheduler.max_batched_tokens: the server was started for steps of " +
                                         std::to_string(started_with) +
                                         " tokens, and more takes a restart; lower it, or restart the server");
  }
  const std::shared_ptr<const Policy> running = runtime_->engine->policy();
  Callers& callers = *server_->callers();
  const Policy next = CarryOver(callers.Named(*running), policy);
  if (absl::Status valid = ValidatePolicy(next, runtime_->policy_context.pool); !valid.ok()) return valid;
  callers.SetPolicy(next);
  runtime_->engine->SetPolicy(next);
  AwaitAdoption(*runtime_->engine, running);
  callers.SetIdentity(IdentityOf(config));
  if (const TlsPem& tls = config.server.tls.pem; tls != tls_) {
    server_->SetTls(tls);
    tls_ = tls;
    const absl::StatusOr<std::vector<CertificateFacts>> chain = ReadCertificates(tls.certificate);
    if (chain.ok()) {
      spdlog::info("TLS: new connections get the certificate of {}, valid until {}", OneLine(chain->front().subject),
                   FormatUtc(chain->front().not_after));
    }
  }
  *drain_timeout_ = config.server.drain_timeout;
  return absl::OkStatus();
}

}  // namespace berth::cli
