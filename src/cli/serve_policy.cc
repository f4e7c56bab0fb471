#include "cli/serve_policy.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "base/certificate.h"
#include "cli/output.h"

namespace berth::cli {
namespace {

constexpr std::size_t kMostChangesLogged = 50;

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

PolicyReloader::Options ReloaderOptions(std::string path, const Runtime& runtime) {
  PolicyReloader::Options options;
  options.path = std::move(path);
  options.context = runtime.policy_context;
  // What a file may say and this server cannot do without a restart.
  options.check = [info = runtime.backend->info()](const ServerConfig&, const Policy& policy) -> absl::Status {
    const auto beyond = [](const std::string& key, std::int32_t most, const std::string& unit) {
      return absl::FailedPreconditionError("scheduler." + key + ": the server was started for steps of " +
                                           std::to_string(most) + " " + unit +
                                           ", and more takes a restart; lower it, or restart the server");
    };
    if (policy.max_batched_tokens > info.max_step_tokens) {
      return beyond("max_batched_tokens", info.max_step_tokens, "tokens");
    }
    if (policy.max_running_sequences > info.max_sequences) {
      return beyond("max_running_sequences", info.max_sequences, "sequences");
    }
    return absl::OkStatus();
  };
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

FrontendOptions FrontendOptionsOf(const ServerConfig& config) {
  FrontendOptions options;
  options.listen_address = config.server.grpc;
  options.tls = config.server.tls.pem;
  options.connections.max_message_bytes = config.server.max_message_bytes;
  options.connections.max_metadata_bytes = config.server.max_metadata_bytes;
  options.connections.max_streams = config.server.max_streams_per_connection;
  options.connections.max_memory_bytes = config.server.max_memory_bytes;
  options.connections.max_age = config.server.max_connection_age;
  options.identity = IdentityOf(config);
  options.write_timeout = config.server.write_timeout;
  options.limits.max_stop_strings = config.request.max_stop_strings;
  options.limits.max_stop_string_bytes = config.request.max_stop_string_bytes;
  options.limits.max_logit_bias = config.request.max_logit_bias;
  options.limits.max_logprobs = config.request.max_logprobs;
  options.limits.max_request_id_bytes = config.request.max_request_id_bytes;
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

ServedPolicy::ServedPolicy(PolicyFile file, std::string path, ConfigFlags flags, const Runtime& runtime,
                           const PolicyFollowers& followers)
    : followers_(followers),
      tls_(file.config.server.tls.pem),
      running_sha256_(file.sha256),
      watch_(file.config.reload == ReloadMode::kWatch),
      reloader_(
          ReloaderOptions(std::move(path), runtime), std::move(file),
          [flags = std::move(flags)](ServerConfig* config) { flags.Apply(config); },
          [this](const ServerConfig& config, const Policy& policy) { return Apply(config, policy); },
          [this](const ReloadReport& report) { Tell(report); }) {}

absl::Status ServedPolicy::Apply(const ServerConfig& config, const Policy& policy) {
  // The engine names nobody that the metrics do not know.
  const auto tell = [&](const Policy& next) { followers_.metrics->TellPolicy(config, next); };
  if (absl::Status replaced = followers_.policy->Replace(policy, tell); !replaced.ok()) return replaced;
  followers_.server->callers()->SetIdentity(IdentityOf(config));
  SetTls(config.server.tls.pem);
  followers_.drain->delay = config.server.drain_delay;
  followers_.drain->timeout = config.server.drain_timeout;
  return absl::OkStatus();
}

void ServedPolicy::SetTls(const TlsPem& tls) {
  if (tls == tls_) return;
  followers_.server->SetTls(tls);
  if (AdminServer* admin = admin_) admin->SetTls(tls);
  tls_ = tls;
  const absl::StatusOr<std::vector<CertificateFacts>> chain = ReadCertificates(tls.certificate);
  if (!chain.ok()) return;
  spdlog::info("TLS: new connections get the certificate of {}, valid until {}", OneLine(chain->front().subject),
               FormatUtc(chain->front().not_after));
}

void ServedPolicy::Tell(const ReloadReport& report) {
  if (report.ok) running_sha256_ = report.sha256;
  followers_.metrics->OnConfigReload({.successful = report.ok, .hash = running_sha256_});
  LogReload(report);
}

}  // namespace berth::cli
