#include "base/machine.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

namespace berth {
namespace {

namespace fs = std::filesystem;

// The first number in a one-line file; nothing for "max", an absent file or anything else.
std::optional<std::int64_t> ReadNumber(const fs::path& path) {
  std::ifstream in(path);
  std::int64_t value = 0;
  if (!(in >> value)) return std::nullopt;
  return value;
}

// The number behind `key` in a file of "key value" lines.
std::optional<std::int64_t> ReadKey(const fs::path& path, std::string_view key) {
  std::ifstream in(path);
  std::string name;
  std::int64_t value = 0;
  while (in >> name >> value) {
    if (name == key) return value;
    in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

// The folders that describe this process's control group and its ancestors, the innermost first; limits of all of them
// hold. `controller` names the hierarchy of v1, empty means v2.
std::vector<fs::path> ControlGroupFolders(const std::string& root, std::string_view controller) {
  std::ifstream in(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::stringstream names(line.substr(first + 1, second - first - 1));
    bool ours = controller.empty() && second == first + 1;
    for (std::string name; std::getline(names, name, ',');) ours = ours || name == controller;
    if (!ours) continue;

    fs::path mount = root + "/sys/fs/cgroup";
    if (!controller.empty()) mount /= controller;
    std::error_code error;
    if (controller.empty() && fs::exists(mount / "unified", error)) mount /= "unified";
    std::vector<fs::path> folders;
    // Inside a container the path may be the host's and lead nowhere; the mount itself is then the container's own
    // group.
    for (fs::path below = fs::path(line.substr(second + 1)).relative_path(); !below.empty();
         below = below.parent_path()) {
      folders.push_back(mount / below);
    }
    folders.push_back(mount);
    return folders;
  }
  return {};
}

}  // namespace

int AllowedCpus(const std::string& root) {
  cpu_set_t mask;
  double cpus = sched_getaffinity(0, sizeof(mask), &mask) == 0 ? CPU_COUNT(&mask) : 1;
  for (const fs::path& folder : ControlGroupFolders(root, "")) {
    std::ifstream in(folder / "cpu.max");
    double quota = 0;
    double period = 0;
    if (in >> quota >> period && quota > 0 && period > 0) cpus = std::min(cpus, quota / period);
  }
  for (const fs::path& folder : ControlGroupFolders(root, "cpu")) {
    const double quota = static_cast<double>(ReadNumber(folder / "cpu.cfs_quota_us").value_or(-1));
    const double period = static_cast<double>(ReadNumber(folder / "cpu.cfs_period_us").value_or(0));
    if (quota > 0 && period > 0) cpus = std::min(cpus, quota / period);
  }
  return std::max(1, static_cast<int>(std::ceil(cpus)));
}

std::int64_t AvailableMemoryBytes(const std::string& root) {
  std::int64_t available = ReadKey(root + "/proc/meminfo", "MemAvailable:").value_or(0) * 1024;
  const auto cut = [&](const fs::path& folder, const char* limit_file, const char* usage_file, const char* cache_key) {
    const std::optional<std::int64_t> limit = ReadNumber(folder / limit_file);
    const std::optional<std::int64_t> usage = ReadNumber(folder / usage_file);
    if (!limit || !usage) return;
    const std::int64_t cache = ReadKey(folder / "memory.stat", cache_key).value_or(0);
    available = std::min(available, std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, *usage - cache)));
  };
  for (const fs::path& folder : ControlGroupFolders(root, "")) {
    cut(folder, "memory.max", "memory.current", "inactive_file");
  }
  for (const fs::path& folder : ControlGroupFolders(root, "memory")) {
    cut(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file");
  }
  return available;
}

}  // namespace berth
