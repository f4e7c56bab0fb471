// The kernel's numbers about this process.
#include <gtest/gtest.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "telemetry/process_stats.h"

namespace berth::test {
namespace {

TEST(ProcessStatsTest, TellsAboutThisProcess) {
  const ProcessStats stats = ReadProcessStats();
  EXPECT_GT(stats.resident_bytes, 1e6);
  EXPECT_GE(stats.virtual_bytes, stats.resident_bytes);
  EXPECT_GE(stats.peak_resident_bytes, 1e6);
  EXPECT_GE(stats.open_fds, 3.0);
  EXPECT_GE(stats.max_fds, stats.open_fds);
  EXPECT_GE(stats.cpu_seconds, 0.0);
  const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_LT(stats.start_time_seconds, now + 2.0);
  EXPECT_GT(stats.start_time_seconds, now - 24.0 * 3600.0);
}

TEST(ProcessStatsTest, SeesFilesAndThreadsComeAndGo) {
  const ProcessStats before = ReadProcessStats();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(ReadProcessStats().open_fds, before.open_fds + 2.0);
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(ReadProcessStats().open_fds, before.open_fds);
  double during = 0.0;
  std::thread([&] { during = ReadProcessStats().threads; }).join();
  EXPECT_EQ(during, before.threads + 1.0);
}

TEST(ProcessStatsTest, TellsAboutAnotherProcessAndNothingOfOneThatIsNotThere) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[1]);
    char byte;
    _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);  // lives until the pipe ends
  }
  close(ends[0]);
  const ProcessStats running = ReadProcessStats(child);
  EXPECT_GT(running.resident_bytes, 0.0);
  EXPECT_GT(running.peak_resident_bytes, 0.0);
  EXPECT_EQ(running.threads, 1.0);
  EXPECT_GE(running.open_fds, 1.0);
  close(ends[1]);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  const ProcessStats gone = ReadProcessStats(child);
  EXPECT_EQ(gone.resident_bytes, 0.0);
  EXPECT_EQ(gone.peak_resident_bytes, 0.0);
  EXPECT_EQ(gone.max_fds, 0.0);
  EXPECT_EQ(gone.threads, 0.0);
}

}  // namespace
}  // namespace berth::test
