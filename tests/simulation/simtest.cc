// simtest: random workloads with faults against the real core.
//
// environment: REQUESTS (default 20000), SEED (default 1): simulates scenarios from that seed on until so many requests
// arrived. KEEP=3,7,9 with SEED: replays that scenario with these events alone, as a failure prints it. AHEAD=0 or 1:
// no step is submitted ahead of the one before, or each; default: in every other scenario.
// BUG=n (only where bugs can be planted): switches one on.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>

#include "base/planted_bug.h"
#include "simulate.h"

namespace {

using namespace berth::simulation;

std::int64_t FromEnvironment(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

std::vector<std::size_t> KeptEvents(const std::string& text) {
  std::vector<std::size_t> kept;
  std::istringstream in(text);
  for (std::string index; std::getline(in, index, ',');) kept.push_back(std::stoull(index));
  return kept;
}

Scenario Make(std::uint64_t seed) {
  Scenario scenario = MakeScenario(seed);
  scenario.max_steps_in_flight =
      static_cast<std::int32_t>(FromEnvironment("AHEAD", scenario.max_steps_in_flight - 1)) + 1;
  return scenario;
}

void PrintShrunk(const Scenario& scenario, const std::vector<std::size_t>& kept) {
  const Scenario shrunk = Keep(scenario, kept);
  std::cout << "shrunk from " << scenario.events.size() << " to " << kept.size() << " events:\n"
            << "  pool of " << shrunk.pool.num_blocks << " blocks of " << shrunk.pool.block_tokens << " tokens and "
            << shrunk.pool.host_blocks << " of the host's, " << shrunk.policy.max_running_sequences << " sequences, "
            << shrunk.max_steps_in_flight << " steps in flight\n";
  Event first;
  first.kind = Event::Kind::kPolicy;
  first.policy = shrunk.policy;
  std::cout << "  " << Describe(first) << "\n";
  for (const Event& event : shrunk.events) std::cout << "  " << Describe(event) << "\n";
  std::cout << "replay: AHEAD=" << scenario.max_steps_in_flight - 1 << " SEED=" << scenario.seed << " KEEP=";
  for (std::size_t i = 0; i < kept.size(); ++i) std::cout << (i > 0 ? "," : "") << kept[i];
  std::cout << " simtest" << std::endl;
}

int Fail(const Scenario& scenario, const std::string& violation) {
  std::cout << "seed " << scenario.seed << ": " << violation << std::endl;
  std::string last = violation;
  PrintShrunk(scenario, Shrink(scenario, [&](const Scenario& fewer) {
                std::optional<std::string> why = Simulate(fewer).violation;
                if (!why.has_value() || !SameKind(*why, violation)) return false;
                last = *std::move(why);
                return true;
              }));
  std::cout << "  " << last << "\n";
  return 1;
}

// A failed check aborts, so who survives it must be another process.
bool Crashes(const Scenario& scenario) {
  const pid_t child = fork();
  if (child == 0) {
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDERR_FILENO);
    (void)Simulate(scenario);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status);
}

// The seed is told to whoever watches.
int RunScenarios(std::int64_t requests, std::uint64_t seed, volatile std::uint64_t* running) {
  Report total;
  std::int64_t scenarios = 0;
  for (; total.requests < requests; ++seed, ++scenarios) {
    *running = seed;
    const Scenario scenario = Make(seed);
    const Report report = Simulate(scenario);
    if (report.violation.has_value()) return Fail(scenario, *report.violation);
    total.requests += report.requests;
    total.plans += report.plans;
    total.starts += report.starts;
    total.preemptions += report.preemptions;
    total.complete += report.complete;
    total.swapped_out_blocks += report.swapped_out_blocks;
    total.swapped_in_blocks += report.swapped_in_blocks;
  }
  std::cout << scenarios << " scenarios, " << total.requests << " requests, " << total.starts << " starts, "
            << total.preemptions << " preemptions, " << total.swapped_out_blocks << " blocks swapped out and "
            << total.swapped_in_blocks << " in, " << total.complete << " complete, " << total.plans
            << " plans: all invariants held" << std::endl;
  return 0;
}

}  // namespace

int main() {
  const std::int64_t requests = FromEnvironment("REQUESTS", 20000);
  const auto seed = static_cast<std::uint64_t>(FromEnvironment("SEED", 1));
#ifdef BERTH_PLANTED_BUGS
  berth::planted_bug = static_cast<berth::PlantedBug>(FromEnvironment("BUG", 0));
#endif
  if (const char* keep = std::getenv("KEEP")) {
    const Report report = Simulate(Keep(Make(seed), KeptEvents(keep)));
    std::cout << report.violation.value_or("no violation") << "\n";
    return report.violation.has_value() ? 1 : 0;
  }
  void* shared = mmap(nullptr, sizeof(std::uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 2;
  auto* running = static_cast<volatile std::uint64_t*>(shared);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(RunScenarios(requests, seed, running));
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const Scenario scenario = Make(*running);
  std::cout << "seed " << scenario.seed << ": crashed" << std::endl;
  PrintShrunk(scenario, Shrink(scenario, Crashes));
  return 1;
}
