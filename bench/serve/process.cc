#include "process.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace berth::bench {

ProcessUse UseOf(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  ProcessUse use;
  std::ifstream stat(folder + "/stat");
  std::string line;
  std::getline(stat, line);
  // Behind the name, which may hold anything: state is field 3, user and system time are 14 and 15.
  const std::size_t name_end = line.rfind(')');
  if (name_end != std::string::npos) {
    std::istringstream fields(line.substr(name_end + 1));
    std::string skipped;
    for (int field = 3; field < 14; ++field) fields >> skipped;
    double user = 0.0;
    double system = 0.0;
    fields >> user >> system;
    use.cpu_seconds = (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  std::ifstream status(folder + "/status");
  while (std::getline(status, line)) {
    if (line.starts_with("VmHWM:")) use.peak_bytes = std::stoll(line.substr(6)) * 1024;
  }
  return use;
}

}  // namespace berth::bench
