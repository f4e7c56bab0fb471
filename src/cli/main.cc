// berth: every command.
#include <array>

#include "cli/program.h"

int main(int argc, char** argv) {
  using namespace berth::cli;
  constexpr std::array<AddCommand, 16> kCommands = {
      AddServeCommand,    AddGenerateCommand,   AddBatchCommand,  AddClientCommand,
      AddTokenizeCommand, AddDetokenizeCommand, AddScoreCommand,  AddInspectCommand,
      AddDevicesCommand,  AddCheckCommand,      AddStatusCommand, AddRequestsCommand,
      AddCancelCommand,   AddReloadCommand,     AddDrainCommand,  AddUsageCommand};
  return RunProgram(argc, argv, kCommands);
}
