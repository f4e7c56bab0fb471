#include "telemetry/process_stats.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

namespace berth {
namespace {

// The fields of a process's stat from the third on, as proc(5) numbers them from 1: what stands before them is the
// command in parentheses, and may hold anything.
std::vector<std::string> StatFields(const std::string& folder) {
  std::ifstream file(folder + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t command_end = text.rfind(')');
  std::vector<std::string> fields(2);
  if (command_end == std::string::npos) return fields;
  std::istringstream rest(text.substr(command_end + 1));
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

double Field(const std::vector<std::string>& fields, std::size_t number) {
  return number <= fields.size() ? std::strtod(fields[number - 1].c_str(), nullptr) : 0.0;
}

double BootTimeSeconds() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("btime ")) return std::strtod(line.c_str() + 6, nullptr);
  }
  return 0.0;
}

double PeakResidentBytes(const std::string& folder) {
  std::ifstream file(folder + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) return std::strtod(line.c_str() + 6, nullptr) * 1024.0;  // the file counts in KiB
  }
  return 0.0;
}

double Limit(pid_t pid, int resource) {
  rlimit limit{};
  if (prlimit(pid, static_cast<__rlimit_resource>(resource), nullptr, &limit) != 0) return 0.0;
  return limit.rlim_cur == RLIM_INFINITY ? std::numeric_limits<double>::infinity()
                                         : static_cast<double>(limit.rlim_cur);
}

double OpenFds(pid_t pid, const std::string& folder) {
  std::error_code error;
  double count = pid == 0 ? -1.0 : 0.0;  // our own folder is open while it is read
  for (std::filesystem::directory_iterator it(folder + "/fd", error), end; !error && it != end; it.increment(error)) {
    count += 1.0;
  }
  return count < 0.0 ? 0.0 : count;
}

}  // namespace

ProcessStats ReadProcessStats(pid_t pid) {
  const std::string folder = "/proc/" + (pid == 0 ? std::string("self") : std::to_string(pid));
  const std::vector<std::string> fields = StatFields(folder);
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
  return {.cpu_seconds = (Field(fields, 14) + Field(fields, 15)) / ticks,
          .resident_bytes = Field(fields, 24) * page,
          .peak_resident_bytes = PeakResidentBytes(folder),
          .virtual_bytes = Field(fields, 23),
          .max_virtual_bytes = Limit(pid, RLIMIT_AS),
          .open_fds = OpenFds(pid, folder),
          .max_fds = Limit(pid, RLIMIT_NOFILE),
          .start_time_seconds = BootTimeSeconds() + Field(fields, 22) / ticks,
          .threads = Field(fields, 20)};
}

}  // namespace berth
