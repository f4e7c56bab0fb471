// simtest: random workloads with faults against the real core.
//
// environment: REQUESTS (default 20000), SEED (default 1): simulates scenarios from that seed on until so many requests
// arrived. KEEP=3,7,9 with SEED: replays that scenario with these events alone, as a failure prints it.
// BUG=n (only where bugs can be planted): switches one on.
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#include "base/planted_bug.h"
#include "simulate.h"

namespace {

char crash_note[128];

// A failed check aborts: say which seed it was.
void OnAbort(int /*signal*/) {
  if (write(STDERR_FILENO, crash_note, sizeof(crash_note)) < 0) _exit(3);
  _exit(2);
}

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

int Fail(const berth::simulation::Scenario& scenario, const std::string& violation) {
  using namespace berth::simulation;
  const std::vector<std::size_t> kept = Shrink(scenario, violation);
  const Scenario shrunk = Keep(scenario, kept);
  std::cout << "seed " << scenario.seed << ": " << violation << "\n"
            << "shrunk from " << scenario.events.size() << " to " << kept.size() << " events:\n"
            << "  pool of " << shrunk.pool.num_blocks << " blocks of " << shrunk.pool.block_tokens << " tokens and "
            << shrunk.pool.host_blocks << " of the host's, " << shrunk.policy.max_running_sequences << " sequences\n";
  Event first;
  first.kind = Event::Kind::kPolicy;
  first.policy = shrunk.policy;
  std::cout << "  " << Describe(first) << "\n";
  for (const Event& event : shrunk.events) std::cout << "  " << Describe(event) << "\n";
  std::cout << "  " << Simulate(shrunk).violation.value_or("(gone)") << "\nreplay: SEED=" << scenario.seed << " KEEP=";
  for (std::size_t i = 0; i < kept.size(); ++i) std::cout << (i > 0 ? "," : "") << kept[i];
  std::cout << " simtest\n";
  return 1;
}

}  // namespace

int main() {
  using namespace berth::simulation;
  std::signal(SIGABRT, OnAbort);
  const std::int64_t requests = FromEnvironment("REQUESTS", 20000);
  auto seed = static_cast<std::uint64_t>(FromEnvironment("SEED", 1));
#ifdef BERTH_PLANTED_BUGS
  berth::planted_bug = static_cast<berth::PlantedBug>(FromEnvironment("BUG", 0));
#endif
  if (const char* keep = std::getenv("KEEP")) {
    const Report report = Simulate(Keep(MakeScenario(seed), KeptEvents(keep)));
    std::cout << report.violation.value_or("no violation") << "\n";
    return report.violation.has_value() ? 1 : 0;
  }
  Report total;
  std::int64_t scenarios = 0;
  for (; total.requests < requests; ++seed, ++scenarios) {
    std::snprintf(crash_note, sizeof(crash_note), "crashed in seed %llu after %lld requests\n",
                  static_cast<unsigned long long>(seed), static_cast<long long>(total.requests));
    const Scenario scenario = MakeScenario(seed);
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
            << " plans: all invariants held\n";
  return 0;
}
