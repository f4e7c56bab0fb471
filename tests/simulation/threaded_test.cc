// The simulation's workloads, replayed through the threaded engine. The workload is a function of the seed; how the
// threads meet is not.
//
// environment: REQUESTS (default 20000), SEED (default 1).
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "threaded_run.h"

namespace {

char crash_note[64];

void TellSeed() {
  if (write(STDERR_FILENO, crash_note, std::strlen(crash_note)) < 0) _exit(3);
}

void OnAbort(int /*signal*/) {
  TellSeed();
  _exit(2);
}

std::int64_t FromEnvironment(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

}  // namespace

// ThreadSanitizer's, before it prints what it found.
extern "C" void __tsan_on_report(void* /*report*/) { TellSeed(); }

namespace berth::simulation {
namespace {

TEST(ThreadedEngine, KeepsItsPromisesWhateverItsThreadsDo) {
  std::signal(SIGABRT, OnAbort);
  const std::int64_t requests = FromEnvironment("REQUESTS", 20000);
  ThreadedReport total;
  std::int64_t scenarios = 0;
  for (auto seed = static_cast<std::uint64_t>(FromEnvironment("SEED", 1)); total.requests < requests; ++seed) {
    std::snprintf(crash_note, sizeof(crash_note), "threaded simulation, SEED=%llu\n",
                  static_cast<unsigned long long>(seed));
    const ThreadedReport report = RunThreaded(MakeScenario(seed));
    ASSERT_EQ(report.violation, "") << "SEED=" << seed;
    ++scenarios;
    total.requests += report.requests;
    total.submitted += report.submitted;
    total.complete += report.complete;
    total.preemptions += report.preemptions;
    total.swapped_blocks += report.swapped_blocks;
    total.failed_steps += report.failed_steps;
  }
  const auto count = [](std::int64_t value) { return static_cast<long long>(value); };
  std::printf(
      "%lld scenarios, %lld requests, %lld submitted, %lld complete, %lld preemptions, %lld blocks swapped in, "
      "%lld failed steps\n",
      count(scenarios), count(total.requests), count(total.submitted), count(total.complete), count(total.preemptions),
      count(total.swapped_blocks), count(total.failed_steps));
  EXPECT_GT(total.complete, total.submitted / 4);
}

}  // namespace
}  // namespace berth::simulation
