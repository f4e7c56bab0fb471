#include <cstdio>
#include <memory>
#include <string>

#include "cli/admin_report.h"
#include "cli/client/admin_client.h"
#include "cli/commands.h"
#include "cli/connection_flags.h"
#include "cli/flags.h"
#include "cli/policy_report.h"
#include "cli/runtime.h"
#include "config/policy_file.h"
#include "config/resolve_policy.h"
#include "config/schema.h"
#include "config/size.h"

namespace berth::cli {
namespace {

struct CheckOptions {
  std::string file;
  std::string model;
  std::int32_t blocks = 10'000;
  std::int32_t typical_prompt_tokens = 512;
  bool strict = false;
  bool json = false;
  bool schema = false;
  ConnectionFlags against;
};

// What the policy is resolved for, and how that was come by.
struct Target {
  PolicyContext context;
  std::string origin;
};

absl::StatusOr<Target> FindTarget(const CheckOptions& options, ServerConfig config) {
  Target target;
  if (options.model.empty()) {
    target.context.pool = {options.blocks, config.kv_cache.block_tokens};
    target.origin = "--blocks; --model M counts the real ones";
    return target;
  }
  config.model.path = options.model;
  const absl::StatusOr<ModelPlan> plan = PlanModel(&config);
  if (!plan.ok()) return plan.status();
  target.context = plan->context;
  target.origin = FormatBytes(plan->pool.bytes) + " in " + KvDtypeName(config.kv_dtype()) + ", context " +
                  GroupDigits(config.model.max_context_tokens) + ", on this machine now";
  return target;
}

std::string Summary(const Diagnostics& diagnostics) {
  return diagnostics.errors() + diagnostics.warnings() == 0 ? "no errors, no warnings" : diagnostics.Summary();
}

Json FindingsJson(const Diagnostics& diagnostics) {
  Json findings = Json::array();
  for (const Diagnostic& finding : diagnostics.Sorted()) {
    findings.push_back({{"line", finding.location.line},
                        {"column", finding.location.column},
                        {"severity", finding.severity == Severity::kError ? "error" : "warning"},
                        {"key", finding.key},
                        {"message", finding.message}});
  }
  return findings;
}

void WriteText(const CheckOptions& options, const PolicyFile& file, const Policy& policy, const Target& target,
               const Diagnostics& diagnostics, Output& out) {
  const std::int64_t tokens = std::int64_t{target.context.pool.num_blocks} * target.context.pool.block_tokens;
  FactTable facts;
  facts.Add("pool", GroupDigits(target.context.pool.num_blocks) + " blocks of " +
                        std::to_string(target.context.pool.block_tokens) + " tokens = " + GroupDigits(tokens) +
                        " tokens (" + target.origin + ")");
  facts.Add("steps", GroupDigits(policy.max_running_sequences) + " sequences at once, " +
                         GroupDigits(policy.max_batched_tokens) + " tokens each");
  facts.Add("typical", "a prompt of " + GroupDigits(options.typical_prompt_tokens) +
                           " tokens (--typical-prompt) and the class's default output");
  facts.Add("sha256", file.sha256);
  out.Write(options.file + ": " + Summary(diagnostics) + "\n" + facts.Text());
  out.Write(PolicyTables(file.config, policy, target.context,
                         ReportClasses(policy, target.context, options.typical_prompt_tokens)));
}

// What the file would change of a running server, which judges it by its own pool and model.
Outcome CheckAgainst(const CheckOptions& options, Output& out) {
  const absl::StatusOr<std::string> text = ReadConfigFile(options.file);
  if (!text.ok()) return UsageError(options.file + ": " + std::string(text.status().message()));
  absl::StatusOr<ConnectionOptions> reach = MakeConnection(options.against);
  if (!reach.ok()) return FromStatus(reach.status());
  AdminClient client(*std::move(reach));
  v1::ReloadPolicyRequest request;
  request.set_dry_run(true);
  request.set_policy(*text);
  const absl::StatusOr<v1::ReloadPolicyResponse> response = client.ReloadPolicy(request);
  if (!response.ok()) return AdminFault(response.status());
  return ReportReload(*response, options.file, options.strict, options.json, out);
}

Outcome Check(const CheckOptions& options, Output& out) {
  if (options.schema) {
    out.Write(PolicySchema());
    return {};
  }
  if (options.file.empty()) return UsageError("a file is missing; see berth check --help");
  if (!options.against.server.empty()) return CheckAgainst(options, out);
  Diagnostics diagnostics(options.file);
  const PolicyFile file = ReadPolicyFile(options.file, Severity::kWarning, &diagnostics);
  std::optional<Policy> policy;
  Target target;
  if (diagnostics.ok()) {
    absl::StatusOr<Target> found = FindTarget(options, file.config);
    if (!found.ok()) return FromStatus(found.status());
    target = *std::move(found);
    policy = ResolvePolicy(file.config, target.context, &diagnostics);
  }
  if (options.json) {
    Json json = {{"file", options.file}, {"ok", diagnostics.ok()}, {"sha256", file.sha256}};
    json["findings"] = FindingsJson(diagnostics);
    if (policy) {
      json.update(
          PolicyJson(*policy, target.context, ReportClasses(*policy, target.context, options.typical_prompt_tokens)));
    }
    out.WriteJson(json);
  } else {
    for (const std::string& line : diagnostics.Lines()) std::fprintf(stderr, "%s\n", OneLine(line).c_str());
    if (policy) WriteText(options, file, *policy, target, diagnostics, out);
  }
  const bool bad = !diagnostics.ok() || (options.strict && diagnostics.warnings() > 0);
  return bad ? UsageError(options.file + ": " + diagnostics.Summary()) : Outcome{};
}

}  // namespace

void AddCheckCommand(CLI::App* root, Invocation* invocation) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* app = root->add_subcommand("check", "What a policy file says, what is wrong with it, what it comes to");
  AddText(app, "file,--file", &options->file, "FILE", "policy file, such as configs/berth.yaml");
  AddText(app, "--model", &options->model, "PATH",
          "count the blocks that 'berth serve' would have for this GGUF model on this machine")
      ->group("Pool");
  AddInt(app, "--blocks", &options->blocks, 1, INT32_MAX,
         "KV blocks to count with where no model is given; default " + std::to_string(options->blocks))
      ->group("Pool")
      ->excludes("--model");
  AddInt(app, "--typical-prompt", &options->typical_prompt_tokens, 1, INT32_MAX,
         "prompt tokens of a typical request; default " + std::to_string(options->typical_prompt_tokens))
      ->group("Pool");
  AddAdminFlags(app, &options->against, "--against");
  app->add_flag("--strict", options->strict, "exit with 2 for warnings too")->group("Output");
  app->add_flag("--schema", options->schema, "print the JSON Schema of policy files, for editors, and nothing else")
      ->group("Output");
  AddJson(app, &options->json,
          "one object: ok, findings, pool, classes, tenants; with --against: applied, hash, changes, findings, error, "
          "debts");
  app->footer(
      "Errors and warnings go to standard error, a line each: FILE:LINE:COLUMN: error: KEY: what is wrong, the limit,\n"
      "the remedy. Exit code: 0, or 2 where there are errors. An API key file that is not here is a warning.\n"
      "With --against the server that runs there says what the file would change: each key with its old and new value, "
      "and\n"
      "the classes that would hold more than they may. Nothing is changed.\n\n"
      "Example:\n"
      "  berth check configs/berth.yaml --model model.gguf --strict");
  app->callback([=] { invocation->run = [=](Output& out) { return Check(*options, out); }; });
}

}  // namespace berth::cli
