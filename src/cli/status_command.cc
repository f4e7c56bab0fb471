#include <unistd.h>

#include <memory>
#include <stop_token>
#include <string>

#include "cli/admin_report.h"
#include "cli/client/admin_client.h"
#include "cli/commands.h"
#include "cli/connection_flags.h"
#include "cli/flags.h"
#include "cli/proto_json.h"
#include "cli/signals.h"

namespace berth::cli {
namespace {

// Top left, and nothing below.
constexpr const char* kRedraw = "\x1b[H\x1b[J";

struct StatusOptions {
  ConnectionFlags admin;
  float interval_seconds = 1.0F;
  bool watch = false;
  bool json = false;
};

std::string Shown(const v1::ServerStatus& status, bool json) {
  return json ? DumpJson(ProtoJson(status)) + "\n" : StatusText(status);
}

Outcome Watch(const StatusOptions& options, AdminClient* client, Output& out) {
  SignalWatcher signals;
  std::stop_source stop;
  signals.SetHandler([&](int) { stop.request_stop(); });
  const bool redraw = !options.json && ::isatty(STDOUT_FILENO) == 1;
  bool first = true;
  const auto show = [&](const v1::ServerStatus& status) {
    if (redraw) out.Write(kRedraw);
    if (!redraw && !options.json && !first) out.Write("\n");
    first = false;
    out.Write(Shown(status, options.json));
    return out.Flush();
  };
  const auto interval = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(static_cast<double>(options.interval_seconds)));
  const absl::Status status = client->Watch(interval, show, stop.get_token());
  signals.SetHandler(nullptr);
  if (stop.stop_requested() || out.closed()) return {};
  // The server has no end of its own for this call: it is gone, or going.
  if (!first) return Fault("the server at " + options.admin.server + " has ended");
  return AdminFault(status);
}

Outcome Status(const StatusOptions& options, Output& out) {
  absl::StatusOr<ConnectionOptions> reach = MakeConnection(options.admin);
  if (!reach.ok()) return FromStatus(reach.status());
  AdminClient client(*std::move(reach));
  if (options.watch) return Watch(options, &client, out);
  const absl::StatusOr<v1::ServerStatus> status = client.GetStatus();
  if (!status.ok()) return AdminFault(status.status());
  out.Write(Shown(*status, options.json));
  return {};
}

}  // namespace

void AddStatusCommand(CLI::App* root, Invocation* invocation) {
  auto options = std::make_shared<StatusOptions>();
  CLI::App* app = root->add_subcommand("status", "How a running server is: classes, pool, queues, promises");
  AddAdminFlags(app, &options->admin);
  app->add_flag("--watch", options->watch, "go on: redrawn in place on a terminal, else a block each time")
      ->group("Output");
  AddFloat(app, "--interval", &options->interval_seconds, 0.1F, 60.0F, false,
           "with --watch: seconds between two looks; default 1")
      ->group("Output");
  AddJson(app, &options->json, "one object, or one a line with --watch");
  app->footer(
      "Of each class: requests, KV blocks (used; guarantee and ceiling; borrowed; debt), pressure (what is admitted "
      "and\n"
      "queued as a share of what the class could have: above 100% somebody waits) and how its promises were kept "
      "since\n"
      "the server started. Ctrl-C ends --watch. Exit code: 0, or 1 where the server cannot be reached.\n\n"
      "Example:\n"
      "  berth status --watch --admin unix:/run/berth/admin.sock");
  app->callback([=] { invocation->run = [=](Output& out) { return Status(*options, out); }; });
}

}  // namespace berth::cli
