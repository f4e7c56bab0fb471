#include "cli/serve_admin.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "cli/output.h"

namespace berth::cli {
namespace {

absl::Status Reload(const AdminWiring& wiring, const v1::ReloadPolicyRequest& request,
                    v1::ReloadPolicyResponse* response) {
  if (wiring.file == nullptr) {
    return absl::FailedPreconditionError(
        "the server was started without a policy file, so there is none to read: start it with --config FILE");
  }
  if (request.has_policy() && !request.dry_run()) {
    return absl::InvalidArgumentError("policy: a text can be judged with dry_run alone; write it to the server's file");
  }
  ReloadRequest asked;
  asked.dry_run = request.dry_run();
  asked.expected_sha256 = request.expected_hash();
  if (request.has_policy()) asked.text = request.policy();
  const ReloadReport report = wiring.file->Reload(asked);
  response->set_applied(report.ok);
  response->set_dry_run(report.dry_run);
  response->set_hash(report.sha256);
  for (const Change& change : report.changes) {
    v1::PolicyChange* out = response->add_changes();
    out->set_key(change.key);
    out->set_before(change.old_value);
    out->set_after(change.new_value);
  }
  for (const std::string& finding : report.findings) response->add_findings(OneLine(finding));
  response->set_error(OneLine(report.error));
  if (report.policy.has_value()) {
    for (v1::ClassDebt& debt : DebtsUnder(wiring.policy->Carried(*report.policy), wiring.engine->load())) {
      *response->add_debts() = std::move(debt);
    }
  }
  return absl::OkStatus();
}

absl::Status Usage(const Telemetry& telemetry, const v1::GetUsageRequest& request, v1::GetUsageResponse* response) {
  // Before anything that is kept: all there is.
  UnixSeconds since{};
  if (request.has_since()) since = UnixSeconds(std::chrono::seconds(request.since().seconds()));
  const UsageReport report = telemetry.usage().Since(since);
  response->mutable_from()->set_seconds(report.from.time_since_epoch().count());
  response->set_complete(report.complete || !request.has_since());
  for (const UsageRow& row : report.rows) {
    v1::UsageRow* out = response->add_rows();
    out->set_tenant(row.tenant);
    out->set_service_class(row.service_class);
    out->set_requests(row.totals.requests);
    out->set_prompt_tokens(row.totals.prompt_tokens);
    out->set_cached_tokens(row.totals.cached_tokens);
    out->set_output_tokens(row.totals.output_tokens);
    out->set_kv_block_seconds(row.totals.kv_block_seconds);
    out->set_held_block_seconds(row.totals.held_block_seconds);
    out->set_accelerator_seconds(row.totals.accelerator_seconds);
  }
  return absl::OkStatus();
}

void AddSlo(const char* name, const SloCount& count, double objective, const std::optional<Duration>& threshold,
            v1::ClassStatus* status) {
  v1::SloStatus* slo = status->add_slos();
  slo->set_slo(name);
  slo->set_met(count.met);
  slo->set_missed(count.missed);
  slo->set_objective(objective);
  if (!threshold.has_value()) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(*threshold);
  slo->mutable_threshold()->set_seconds(seconds.count());
  slo->mutable_threshold()->set_nanos(static_cast<std::int32_t>((*threshold - seconds).count()));
}

// What is not promised is not told; a deadline is the caller's, so it is told where anybody had one.
void AddSlos(const Telemetry& telemetry, ClassId service_class, v1::ClassStatus* status) {
  const SloCounts slos = telemetry.Slos(service_class);
  const ClassSlo& promise = slos.promise;
  if (promise.time_to_first_token.has_value()) {
    AddSlo("ttft", slos.time_to_first_token, promise.objective, promise.time_to_first_token, status);
  }
  if (promise.inter_token_latency.has_value()) {
    AddSlo("itl", slos.inter_token_latency, promise.objective, promise.inter_token_latency, status);
  }
  if (slos.deadline.met + slos.deadline.missed > 0) {
    AddSlo("deadline", slos.deadline, promise.objective, std::nullopt, status);
  }
}

// Names that the policy does not list are in the directory, where they have been heard of.
std::optional<TenantId> FindTenant(const Callers& callers, const Policy& policy, const std::string& name) {
  if (name.empty()) return policy.default_tenant;
  const Policy named = callers.Named(policy);
  const auto found = std::find_if(named.tenants.begin(), named.tenants.end(),
                                  [&](const TenantPolicy& tenant) { return tenant.name == name; });
  if (found == named.tenants.end()) return std::nullopt;
  return static_cast<TenantId>(found - named.tenants.begin());
}

}  // namespace

std::vector<v1::ClassDebt> DebtsUnder(const Policy& policy, const LoadSnapshot& load) {
  std::vector<v1::ClassDebt> debts;
  for (std::size_t c = 0; c < std::min(policy.classes.size(), load.classes.size()); ++c) {
    const std::int64_t debt_blocks = load.classes[c].used_blocks - policy.classes[c].ceiling_blocks();
    if (debt_blocks <= 0) continue;
    v1::ClassDebt& debt = debts.emplace_back();
    debt.set_service_class(policy.classes[c].name);
    debt.set_debt_blocks(debt_blocks);
  }
  return debts;
}

AdminHooks MakeAdminHooks(const AdminWiring& wiring) {
  AdminHooks hooks;
  hooks.reload = [wiring](const v1::ReloadPolicyRequest& request, v1::ReloadPolicyResponse* response) {
    return Reload(wiring, request, response);
  };
  hooks.usage = [telemetry = wiring.telemetry](const v1::GetUsageRequest& request, v1::GetUsageResponse* response) {
    return Usage(*telemetry, request, response);
  };
  hooks.drain_class = [policy = wiring.policy](const std::string& name) { return policy->Drain(name); };
  hooks.drain = wiring.drain;
  hooks.policy_sha256 = [file = wiring.file] { return file == nullptr ? std::string() : file->sha256(); };
  hooks.add_slos = [telemetry = wiring.telemetry](ClassId service_class, v1::ClassStatus* status) {
    AddSlos(*telemetry, service_class, status);
  };
  hooks.find_tenant = [engine = wiring.engine, callers = wiring.callers](const std::string& name) {
    return FindTenant(*callers, *engine->policy(), name);
  };
  hooks.tenant_name = [callers = wiring.callers](TenantId tenant) { return callers->TenantName(tenant); };
  return hooks;
}

}  // namespace berth::cli
