// The commands, one file each. Every Add… describes its flags to `root` and, where the command is chosen, leaves in
// `invocation` what is to be run once parsing is over.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

#include "cli/outcome.h"
#include "cli/output.h"

namespace berth::cli {

struct Invocation {
  std::function<Outcome(Output& out)> run;
};

void AddServeCommand(CLI::App* root, Invocation* invocation);
void AddGenerateCommand(CLI::App* root, Invocation* invocation);
void AddBatchCommand(CLI::App* root, Invocation* invocation);
void AddClientCommand(CLI::App* root, Invocation* invocation);
void AddClientHealthCommand(CLI::App* client, Invocation* invocation);
void AddTokenizeCommand(CLI::App* root, Invocation* invocation);
void AddDetokenizeCommand(CLI::App* root, Invocation* invocation);
void AddScoreCommand(CLI::App* root, Invocation* invocation);
void AddInspectCommand(CLI::App* root, Invocation* invocation);
void AddDevicesCommand(CLI::App* root, Invocation* invocation);
void AddCheckCommand(CLI::App* root, Invocation* invocation);
void AddStatusCommand(CLI::App* root, Invocation* invocation);
void AddRequestsCommand(CLI::App* root, Invocation* invocation);
void AddCancelCommand(CLI::App* root, Invocation* invocation);
void AddReloadCommand(CLI::App* root, Invocation* invocation);
void AddDrainCommand(CLI::App* root, Invocation* invocation);
void AddUsageCommand(CLI::App* root, Invocation* invocation);

}  // namespace berth::cli
