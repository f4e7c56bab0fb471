// The commands that run a model in their own process and talk to nobody: what can be linked statically and carried to a
// machine that has a driver and nothing else (docs/kernels.md).
#include <array>

#include "cli/program.h"

int main(int argc, char** argv) {
  using namespace berth::cli;
  constexpr std::array<AddCommand, 7> kCommands = {AddGenerateCommand,   AddBatchCommand, AddTokenizeCommand,
                                                   AddDetokenizeCommand, AddScoreCommand, AddInspectCommand,
                                                   AddDevicesCommand};
  return RunProgram(argc, argv, kCommands);
}
