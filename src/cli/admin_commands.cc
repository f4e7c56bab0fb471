// The operators' commands but for status: each is one call of berth.v1.Admin.
#include <charconv>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli/admin_report.h"
#include "cli/client/admin_client.h"
#include "cli/commands.h"
#include "cli/connection_flags.h"
#include "cli/flags.h"
#include "cli/proto_json.h"
#include "telemetry/usage_ledger.h"

namespace berth::cli {
namespace {

struct AdminOptionsBase {
  ConnectionFlags admin;
  bool json = false;
};

// Runs `call(AdminClient*) -> Outcome`.
template <typename Call>
Outcome WithClient(const ConnectionFlags& flags, const Call& call) {
  absl::StatusOr<ConnectionOptions> reach = MakeConnection(flags);
  if (!reach.ok()) return FromStatus(reach.status());
  AdminClient client(*std::move(reach));
  return call(&client);
}

// --- drain

struct DrainOptions : AdminOptionsBase {
  std::string service_class;
};

Outcome Drain(const DrainOptions& options, Output& out) {
  return WithClient(options.admin, [&](AdminClient* client) -> Outcome {
    v1::DrainRequest request;
    request.set_service_class(options.service_class);
    if (const absl::Status status = client->Drain(request); !status.ok()) return AdminFault(status);
    out.WriteLine(
        options.service_class.empty()
            ? "the server is going down: health says so, and newcomers are refused after server.drain_delay"
            : "class " + options.service_class +
                  " refuses newcomers; what was queued has ended, what runs goes on; a reload brings it back");
    return {};
  });
}

// --- reload

struct ReloadOptions : AdminOptionsBase {
  bool dry_run = false;
  std::string expected_sha256;
};

Outcome Reload(const ReloadOptions& options, Output& out) {
  return WithClient(options.admin, [&](AdminClient* client) -> Outcome {
    v1::ReloadPolicyRequest request;
    request.set_dry_run(options.dry_run);
    request.set_expected_hash(options.expected_sha256);
    const absl::StatusOr<v1::ReloadPolicyResponse> response = client->ReloadPolicy(request);
    if (!response.ok()) return AdminFault(response.status());
    return ReportReload(*response, "", /*strict=*/false, options.json, out);
  });
}

// --- usage

struct UsageOptions : AdminOptionsBase {
  std::string since;
  bool csv = false;
};

// "90s", "30m", "6h", "1d" before now, or a time of day in UTC as ISO 8601 has it.
absl::StatusOr<std::int64_t> ParseSince(const std::string& text, std::int64_t now_seconds) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stop == end - 1 && number >= 0) {
    constexpr std::pair<char, std::int64_t> kUnits[] = {{'s', 1}, {'m', 60}, {'h', 3'600}, {'d', 86'400}};
    for (const auto& [unit, seconds] : kUnits) {
      if (*stop == unit && number <= now_seconds / seconds) return now_seconds - number * seconds;
    }
  }
  for (const char* format : {"%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%MZ", "%Y-%m-%d"}) {
    std::tm parts{};
    const char* parsed = ::strptime(text.c_str(), format, &parts);
    const int day = parts.tm_mday;
    const std::int64_t seconds = ::timegm(&parts);
    // A day that its month has not would be one of the next.
    if (parsed != nullptr && *parsed == '\0' && parts.tm_mday == day) return seconds;
  }
  return absl::InvalidArgumentError(
      "--since must be a time back such as 90s, 30m, 6h or 1d, or a time in UTC such as " + Iso8601(now_seconds) +
      ", not \"" + text + "\"");
}

UsageReport ReportOf(const v1::GetUsageResponse& response) {
  UsageReport report;
  report.from = UnixSeconds(std::chrono::seconds(response.from().seconds()));
  report.complete = response.complete();
  for (const v1::UsageRow& row : response.rows()) {
    report.rows.push_back({.tenant = row.tenant(),
                           .service_class = row.service_class(),
                           .totals = {.requests = row.requests(),
                                      .prompt_tokens = row.prompt_tokens(),
                                      .cached_tokens = row.cached_tokens(),
                                      .output_tokens = row.output_tokens(),
                                      .kv_block_seconds = row.kv_block_seconds(),
                                      .held_block_seconds = row.held_block_seconds(),
                                      .accelerator_seconds = row.accelerator_seconds()}});
  }
  return report;
}

Outcome ShowUsage(const UsageOptions& options, Output& out) {
  v1::GetUsageRequest request;
  if (!options.since.empty()) {
    const absl::StatusOr<std::int64_t> since = ParseSince(options.since, std::time(nullptr));
    if (!since.ok()) return FromStatus(since.status());
    request.mutable_since()->set_seconds(*since);
  }
  return WithClient(options.admin, [&](AdminClient* client) -> Outcome {
    const absl::StatusOr<v1::GetUsageResponse> response = client->GetUsage(request);
    if (!response.ok()) return AdminFault(response.status());
    options.json ? out.WriteJson(ProtoJson(*response)) : out.Write(UsageCsv(ReportOf(*response)));
    return {};
  });
}

// --- requests, cancel

struct RequestsOptions : AdminOptionsBase {
  std::string service_class;
  std::string tenant;
  std::int32_t most = 100;
};

Outcome Requests(const RequestsOptions& options, Output& out) {
  return WithClient(options.admin, [&](AdminClient* client) -> Outcome {
    v1::ListRequestsRequest request;
    request.set_service_class(options.service_class);
    request.set_tenant(options.tenant);
    request.set_max_requests(options.most);
    const absl::StatusOr<v1::ListRequestsResponse> list = client->ListRequests(request);
    if (!list.ok()) return AdminFault(list.status());
    options.json ? out.WriteJson(ProtoJson(*list)) : out.Write(RequestsText(*list));
    return {};
  });
}

struct CancelOptions : AdminOptionsBase {
  std::string request_id;
  std::string tenant;
};

Outcome Cancel(const CancelOptions& options, Output& out) {
  if (options.request_id.empty()) return UsageError("a request id is missing; see berth cancel --help");
  return WithClient(options.admin, [&](AdminClient* client) -> Outcome {
    v1::CancelRequestRequest request;
    request.set_request_id(options.request_id);
    request.set_tenant(options.tenant);
    if (const absl::Status status = client->CancelRequest(request); !status.ok()) return AdminFault(status);
    out.WriteLine("cancelled " + OneLine(options.request_id) + ": its caller gets CANCELLED_BY_OPERATOR");
    return {};
  });
}

constexpr const char* kExitCodes =
    "Exit code: 0; 1 where the server cannot be reached or says no; 2 for what you said.";

}  // namespace

void AddDrainCommand(CLI::App* root, Invocation* invocation) {
  auto options = std::make_shared<DrainOptions>();
  CLI::App* app = root->add_subcommand("drain", "Stop a class, or end the server as SIGTERM does");
  AddAdminFlags(app, &options->admin);
  AddParsed(app, "--class", "NAME",
            "the class to stop until the next reload; default: the whole server, which then ends",
            [name = &options->service_class](const std::string& value) -> std::string {
              // What a script passes on of a variable that is not set is not the whole server.
              if (value.empty()) return "must be the name of a class; without --class the whole server ends";
              *name = value;
              return "";
            })
      ->group("What");
  app->footer(std::string("The command returns at once; 'berth status --watch' shows what is left.\n") + kExitCodes +
              "\n\nExample:\n"
              "  berth drain --class batch");
  app->callback([=] { invocation->run = [=](Output& out) { return Drain(*options, out); }; });
}

void AddReloadCommand(CLI::App* root, Invocation* invocation) {
  auto options = std::make_shared<ReloadOptions>();
  CLI::App* app = root->add_subcommand("reload", "Have a server read its policy file again");
  AddAdminFlags(app, &options->admin);
  app->add_flag("--dry-run", options->dry_run, "say what would change, and change nothing")->group("What");
  AddParsed(app, "--expect", "SHA256", "refuse a file with another SHA-256",
            [expected = &options->expected_sha256](const std::string& value) -> std::string {
              // An empty one would be no bound at all: what a script passes on of a sum that could not be made.
              if (value.size() != 64 || value.find_first_not_of("0123456789abcdef") != std::string::npos) {
                return "must be the 64 hexadecimal digits that sha256sum prints, not " + Quoted(value);
              }
              *expected = value;
              return "";
            })
      ->group("What");
  AddJson(app, &options->json, "one object: applied, hash, changes, findings, error, debts");
  app->footer(
      "Prints each key that changed with its old and new value, and each class that now holds more than it may; errors "
      "and\n"
      "warnings of the file go to standard error. A file that is refused changes nothing: exit code 2.\n\n"
      "Example:\n"
      "  berth reload --dry-run");
  app->callback([=] { invocation->run = [=](Output& out) { return Reload(*options, out); }; });
}

void AddUsageCommand(CLI::App* root, Invocation* invocation) {
  auto options = std::make_shared<UsageOptions>();
  CLI::App* app = root->add_subcommand("usage", "What tenants used, by class, as CSV");
  AddAdminFlags(app, &options->admin);
  AddText(
      app, "--since", &options->since, "TIME",
      "from then on: 90s, 30m, 6h or 1d ago, or a time in UTC (2026-01-31T08:00:00Z); default: all that is kept, a day "
      "at most")
      ->group("What");
  app->add_flag("--csv", options->csv, "a CSV table; the default")->group("Output");
  AddJson(app, &options->json, "one object: from, complete, rows");
  app->footer(
      std::string("Lines that begin with # say from when on requests are counted, and whether older ones are no "
                  "longer kept.\n") +
      kExitCodes +
      "\n\nExample:\n"
      "  berth usage --since 1h");
  app->callback([=] { invocation->run = [=](Output& out) { return ShowUsage(*options, out); }; });
}

void AddRequestsCommand(CLI::App* root, Invocation* invocation) {
  auto options = std::make_shared<RequestsOptions>();
  CLI::App* app = root->add_subcommand("requests", "The requests that a server has now");
  AddAdminFlags(app, &options->admin);
  AddText(app, "--class", &options->service_class, "NAME", "only of this class")->group("Which");
  AddText(app, "--tenant", &options->tenant, "NAME", "only of this tenant")->group("Which");
  AddInt(app, "--max", &options->most, 0, 1000, "at most so many, the oldest; default 100")->group("Which");
  AddJson(app, &options->json, "one object: requests, left_out");
  app->footer(std::string("In the order of their arrival. 'berth cancel ID' ends one.\n") + kExitCodes +
              "\n\nExample:\n"
              "  berth requests --class batch");
  app->callback([=] { invocation->run = [=](Output& out) { return Requests(*options, out); }; });
}

void AddCancelCommand(CLI::App* root, Invocation* invocation) {
  auto options = std::make_shared<CancelOptions>();
  CLI::App* app = root->add_subcommand("cancel", "End a request of a server");
  AddAdminFlags(app, &options->admin);
  AddText(app, "id,--id", &options->request_id, "ID", "the request, as 'berth requests' names it");
  AddText(app, "--tenant", &options->tenant, "NAME", "whose it is; default: the default tenant")->group("Which");
  app->footer(std::string("Its caller gets ABORTED / CANCELLED_BY_OPERATOR and what it used.\n") + kExitCodes +
              "\n\nExample:\n"
              "  berth cancel nightly-17 --tenant acme");
  app->callback([=] { invocation->run = [=](Output& out) { return Cancel(*options, out); }; });
}

}  // namespace berth::cli
