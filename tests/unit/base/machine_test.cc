#include "base/machine.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace berth {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kGiB = 1LL << 30;

// A /proc and /sys of the test's own.
class MachineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) /
            ("machine_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(root_);
    Write("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::string root() const { return root_.string(); }

 private:
  fs::path root_;
};

TEST_F(MachineTest, WithoutControlGroupsTheSystemsFreeMemoryCounts) {
  EXPECT_EQ(AvailableMemoryBytes(root()), 8 * kGiB);
}

TEST_F(MachineTest, UnreadableMachineHasNoMemoryToPromise) { EXPECT_EQ(AvailableMemoryBytes(root() + "/absent"), 0); }

TEST_F(MachineTest, VersionTwoLimitCutsFreeMemoryAndDroppableCacheIsFree) {
  Write("proc/self/cgroup", "0::/pod/box\n");
  Write("sys/fs/cgroup/pod/box/memory.max", "4294967296\n");
  Write("sys/fs/cgroup/pod/box/memory.current", "3221225472\n");
  Write("sys/fs/cgroup/pod/box/memory.stat", "anon 1073741824\nfile 2147483648\ninactive_file 1073741824\n");
  EXPECT_EQ(AvailableMemoryBytes(root()), 2 * kGiB);
}

TEST_F(MachineTest, TheTightestAncestorWins) {
  Write("proc/self/cgroup", "0::/pod/box\n");
  Write("sys/fs/cgroup/pod/box/memory.max", "max\n");
  Write("sys/fs/cgroup/pod/box/memory.current", "1073741824\n");
  Write("sys/fs/cgroup/pod/memory.max", "2147483648\n");
  Write("sys/fs/cgroup/pod/memory.current", "1073741824\n");
  EXPECT_EQ(AvailableMemoryBytes(root()), kGiB);
}

TEST_F(MachineTest, VersionOneLimitIsFoundThroughAHostPathThatLeadsNowhere) {
  Write("proc/self/cgroup", "9:name=systemd:/\n4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
  Write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n");
  Write("sys/fs/cgroup/memory/memory.stat", "cache 5\ntotal_inactive_file 536870912\n");
  EXPECT_EQ(AvailableMemoryBytes(root()), kGiB + kGiB / 2);
}

TEST_F(MachineTest, UsageAboveTheLimitLeavesNothingRatherThanLess) {
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/memory.max", "1073741824\n");
  Write("sys/fs/cgroup/memory.current", "2147483648\n");
  EXPECT_EQ(AvailableMemoryBytes(root()), 0);
}

TEST_F(MachineTest, CpuQuotaCutsTheAffinityMask) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  EXPECT_EQ(AllowedCpus(root()), CPU_COUNT(&mask));

  Write("proc/self/cgroup", "0::/box\n");
  Write("sys/fs/cgroup/box/cpu.max", "50000 100000\n");
  EXPECT_EQ(AllowedCpus(root()), 1);
  Write("sys/fs/cgroup/box/cpu.max", "max 100000\n");
  EXPECT_EQ(AllowedCpus(root()), CPU_COUNT(&mask));
}

TEST_F(MachineTest, VersionOneCpuQuotaCounts) {
  Write("proc/self/cgroup", "1:cpu,cpuacct:/\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(AllowedCpus(root()), 1);
}

}  // namespace
}  // namespace berth
