#include <memory>

#include "cli/client/connection.h"
#include "cli/commands.h"
#include "cli/connection_flags.h"
#include "cli/flags.h"

namespace berth::cli {
namespace {

struct ClientHealthOptions {
  ConnectionFlags connection;
  std::string service;
  float timeout_seconds = 5.0F;
  bool json = false;
};

Outcome ClientHealth(const ClientHealthOptions& options, Output& out) {
  const absl::StatusOr<ConnectionOptions> connection = MakeConnection(options.connection);
  if (!connection.ok()) return FromStatus(connection.status());
  const auto timeout =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(static_cast<double>(options.timeout_seconds)));
  bool serving = false;
  const absl::Status status = CheckServing(*connection, options.service, timeout, &serving);
  if (!status.ok()) return Fault(std::string(status.message()));
  const char* name = serving ? "SERVING" : "NOT_SERVING";
  if (options.json) {
    out.WriteJson({{"service", options.service}, {"status", name}});
  } else {
    out.WriteLine(name);
  }
  return {serving ? kExitOk : kExitFault, ""};
}

}  // namespace

void AddClientHealthCommand(CLI::App* client, Invocation* invocation) {
  auto options = std::make_shared<ClientHealthOptions>();
  CLI::App* app = client->add_subcommand("health", "Ask whether a server is well");
  AddConnectionFlags(app, &options->connection);
  AddText(app, "--service", &options->service, "NAME",
          "readiness, liveness or berth.class.NAME; default: the whole server, which is as readiness")
      ->group("Health");
  AddFloat(app, "--timeout", &options->timeout_seconds, 0.0F, 3600.0F, true,
           "seconds to wait for the answer; default 5")
      ->group("Health");
  AddJson(app, &options->json, "one object: service, status");
  app->footer(
      "Prints SERVING and exits with 0, or NOT_SERVING and exits with 1; 1 also where nobody answers. A probe for\n"
      "containers: it needs no other program.\n\n"
      "Example:\n"
      "  berth client health --server 127.0.0.1:8433 --service readiness");
  app->callback([=] { invocation->run = [=](Output& out) { return ClientHealth(*options, out); }; });
}

}  // namespace berth::cli
