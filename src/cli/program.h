// A program of commands: parses the command line, runs the command, turns its outcome into one line and an exit code.
#pragma once

#include <span>

#include "cli/commands.h"

namespace berth::cli {

using AddCommand = void (*)(CLI::App* root, Invocation* invocation);

// What main returns. `commands` in the order of the help.
int RunProgram(int argc, char** argv, std::span<const AddCommand> commands);

}  // namespace berth::cli
