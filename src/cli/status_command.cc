#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

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

// What standard output is shown on; without bounds where it is no terminal, or one that does not say.
struct Screen {
  std::size_t columns = kAnyNumber;
  std::size_t rows = kAnyNumber;
};

Screen ScreenNow() {
  Screen screen;
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return screen;
  if (size.ws_col > 0) screen.columns = size.ws_col;
  if (size.ws_row > 0) screen.rows = size.ws_row;
  return screen;
}

// A terminal that knows how to go back to its top.
bool CanRedraw() {
  const char* const term = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && (term == nullptr || std::string_view(term) != "dumb");
}

std::string Shown(const v1::ServerStatus& status, bool json, const Screen& screen) {
  return json ? DumpJson(ProtoJson(status)) + "\n" : StatusText(status, screen.columns);
}

Outcome Watch(const StatusOptions& options, ConnectionOptions reach, Output& out) {
  SignalWatcher signals;  // before gRPC's threads, which would take the signals otherwise
  AdminClient client(std::move(reach));
  std::stop_source stop;
  signals.SetHandler([&](int) { stop.request_stop(); });
  const bool redraw = !options.json && CanRedraw();
  bool first = true;
  const auto show = [&](const v1::ServerStatus& status) {
    const Screen screen = ScreenNow();  // each time: it may have changed
    if (redraw) out.Write(kRedraw);
    if (!redraw && !options.json && !first) out.Write("\n");
    first = false;
    const std::string text = Shown(status, options.json, screen);
    // What is longer than the screen would push its own beginning out of it.
    out.Write(redraw ? FirstScreen(text, screen.columns, screen.rows) : text);
    return out.Flush();
  };
  const auto interval = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(static_cast<double>(options.interval_seconds)));
  const absl::Status status = client.Watch(interval, show, stop.get_token());
  signals.SetHandler(nullptr);
  if (stop.stop_requested() || out.closed()) return {};
  // The server has no end of its own for this call: it is gone, or going.
  if (!first) return Fault("the server at " + options.admin.server + " has ended");
  return AdminFault(status);
}

Outcome Status(const StatusOptions& options, Output& out) {
  absl::StatusOr<ConnectionOptions> reach = MakeConnection(options.admin);
  if (!reach.ok()) return FromStatus(reach.status());
  if (options.watch) return Watch(options, *std::move(reach), out);
  AdminClient client(*std::move(reach));
  const absl::StatusOr<v1::ServerStatus> status = client.GetStatus();
  if (!status.ok()) return AdminFault(status.status());
  out.Write(Shown(*status, options.json, ScreenNow()));
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
