// berth: parses the command line, runs the command, turns its outcome into one line and an exit code.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "cli/build_info.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/outcome.h"
#include "cli/output.h"

namespace berth::cli {
namespace {

void DescribeRoot(CLI::App* root) {
  root->name("berth");
  root->set_version_flag("--version", std::string("berth ") + kBuildVersion, "Print the version and exit");
  root->set_help_flag("--help,-h", "Print this help and exit");
  // Left-overs and missing commands are told in our own words, below.
  root->allow_extras();
  root->require_subcommand(0, 1);
  root->formatter(std::make_shared<HelpFormatter>());
  root->footer("'berth COMMAND --help' explains a command and shows an example.");
}

// Every level of "berth client generate" that was given, outermost first.
std::vector<CLI::App*> ChosenCommands(CLI::App* root) {
  std::vector<CLI::App*> chosen = {root};
  for (auto below = root->get_subcommands(); !below.empty(); below = below.front()->get_subcommands()) {
    chosen.push_back(below.front());
  }
  return chosen;
}

std::string CommandName(const std::vector<CLI::App*>& chosen) {
  std::string name;
  for (const CLI::App* app : chosen) name += (name.empty() ? "" : " ") + app->get_name();
  return name;
}

// CLI11 takes "--option=" for an option whose value follows; what is meant is an empty value.
std::vector<std::string> Arguments(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.size() > 3 && argument.starts_with("--") && argument.find('=') == argument.size() - 1) {
      arguments.push_back(argument.substr(0, argument.size() - 1));
      arguments.emplace_back();
    } else {
      arguments.push_back(argument);
    }
  }
  std::reverse(arguments.begin(), arguments.end());  // the order CLI11 wants
  return arguments;
}

// What CLI11 found wrong, in one line.
std::string ParseFault(const CLI::ParseError& error) {
  std::string what = OneLine(error.what());
  if (error.get_name() == "ArgumentMismatch") {
    const std::size_t name = std::min(what.find("--"), what.size());
    const std::string option = what.substr(name, what.find_first_of(":, ", name) - name);
    return option + (what.ends_with("missing") ? " needs a value" : " may be given only once");
  }
  return what;
}

// Arguments nobody claimed, or a command that is missing; empty where all is well.
std::string LeftOverFault(const std::vector<CLI::App*>& chosen) {
  const std::vector<std::string> left = chosen.front()->remaining(true);
  const CLI::App* last = chosen.back();
  const bool wants_command = !last->get_subcommands({}).empty();
  if (!left.empty()) {
    const std::string& first = left.front();
    if (first.starts_with("-")) return "unknown option \"" + OneLine(first) + "\"";
    return (wants_command ? "unknown command \"" : "unexpected argument \"") + OneLine(first) + "\"";
  }
  return wants_command ? "a command is missing" : "";
}

int Report(const std::string& command, const Outcome& outcome) {
  if (!outcome.error.empty()) std::fprintf(stderr, "%s: %s\n", command.c_str(), OneLine(outcome.error).c_str());
  return outcome.exit_code;
}

int Finish(const std::string& command, Output& out) { return Report(command, out.Finish()); }

// With a standard stream closed, the next file opened would take its number and be written to. The stand-in for
// standard output cannot be written: the failure is told, not swallowed. A library's initializer may have taken the
// number before main; such a file is closed on exec, which no inherited stream can be, and a fresh start clears it
// away.
void HoldStandardStreams(char** argv) {
  bool start_again = false;
  for (int fd = 0; fd <= 2; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) continue;
    const int null = open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY);
    if (null == fd || null < 0) continue;
    start_again |= dup2(null, fd) == fd;
    close(null);
  }
  if (start_again) execv("/proc/self/exe", argv);
}

int Main(int argc, char** argv) {
  HoldStandardStreams(argv);
  // A reader that goes away shows as EPIPE where we write, instead of ending a server.
  std::signal(SIGPIPE, SIG_IGN);
  Output out(stdout);
  CLI::App root("Berth serves language models and reserves KV cache before it admits a request.");
  Invocation invocation;
  DescribeRoot(&root);
  AddServeCommand(&root, &invocation);
  AddGenerateCommand(&root, &invocation);
  AddBatchCommand(&root, &invocation);
  AddClientCommand(&root, &invocation);
  AddTokenizeCommand(&root, &invocation);
  AddDetokenizeCommand(&root, &invocation);
  AddScoreCommand(&root, &invocation);
  AddInspectCommand(&root, &invocation);
  AddDevicesCommand(&root, &invocation);
  AddCheckCommand(&root, &invocation);
  AddStatusCommand(&root, &invocation);
  AddRequestsCommand(&root, &invocation);
  AddCancelCommand(&root, &invocation);
  AddReloadCommand(&root, &invocation);
  AddDrainCommand(&root, &invocation);
  AddUsageCommand(&root, &invocation);

  try {
    root.parse(Arguments(argc, argv));
  } catch (const CLI::CallForHelp&) {
    out.Write(root.help());
    return Finish("berth", out);
  } catch (const CLI::CallForVersion& version) {
    out.WriteLine(version.what());
    return Finish("berth", out);
  } catch (const CLI::ParseError& error) {
    const std::string command = CommandName(ChosenCommands(&root));
    return Report(command, UsageError(ParseFault(error) + "; see " + command + " --help"));
  }
  const std::vector<CLI::App*> chosen = ChosenCommands(&root);
  const std::string command = CommandName(chosen);
  if (const std::string fault = LeftOverFault(chosen); !fault.empty()) {
    return Report(command, UsageError(fault + "; see " + command + " --help"));
  }
  const Outcome outcome = invocation.run(out);
  const Outcome written = out.Finish();
  return Report(command, outcome.ok() ? written : outcome);
}

}  // namespace
}  // namespace berth::cli

int main(int argc, char** argv) {
  try {
    return berth::cli::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "berth: unexpected fault: %s\n", berth::cli::OneLine(error.what()).c_str());
  } catch (...) {
    std::fprintf(stderr, "berth: unexpected fault\n");
  }
  return berth::cli::kExitFault;
}
