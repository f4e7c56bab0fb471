#include "worker.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

namespace berth::bench {
namespace {

using nlohmann::json;

// ---- What the worker writes: one line of JSON for the device, then one for each case.

std::string LineOf(const DeviceFacts& facts) {
  return json{{"device",
               {{"name", facts.name},
                {"compute_major", facts.compute_major},
                {"compute_minor", facts.compute_minor},
                {"multiprocessors", facts.multiprocessors},
                {"memory_bytes", facts.memory_bytes},
                {"l2_bytes", facts.l2_bytes},
                {"driver_version", facts.driver_version},
                {"runtime_version", facts.runtime_version}}}}
      .dump();
}

DeviceFacts DeviceOf(const json& device) {
  return {.name = device.at("name"),
          .compute_major = device.at("compute_major"),
          .compute_minor = device.at("compute_minor"),
          .multiprocessors = device.at("multiprocessors"),
          .memory_bytes = device.at("memory_bytes"),
          .l2_bytes = device.at("l2_bytes"),
          .driver_version = device.at("driver_version"),
          .runtime_version = device.at("runtime_version")};
}

std::string LineOf(const Outcome& outcome) {
  const Timing& timing = outcome.timing;
  return json{{"status", static_cast<int>(outcome.status)},
              {"note", outcome.note},
              {"timing", {timing.repetitions, timing.median, timing.lowest, timing.highest, timing.p10, timing.p90}}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

Outcome OutcomeOf(const json& line) {
  const json& timing = line.at("timing");
  return {.status = static_cast<Status>(line.at("status").get<int>()),
          .note = line.at("note"),
          .timing = {timing.at(0), timing.at(1), timing.at(2), timing.at(3), timing.at(4), timing.at(5)}};
}

void WriteLine(int pipe, std::string line) {
  line += '\n';
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t written = write(pipe, line.data() + done, line.size() - done);
    if (written <= 0) _exit(1);  // nobody listens
    done += static_cast<std::size_t>(written);
  }
}

// ---- The worker.

Outcome RunCase(const Case& which, const RunOptions& options, Timer& timer) {
  try {
    Arena arena(options.memory_limit_bytes);
    const Launch launch = which.make(arena);
    const Timing timing = timer.Measure(launch, options.repetitions);
    return {.status = Status::kMeasured, .note = "", .timing = timing};
  } catch (const CaseSkipped& skipped) {
    return {.status = Status::kSkipped, .note = skipped.what(), .timing = {}};
  } catch (const std::exception& failure) {
    return {.status = Status::kFailed, .note = failure.what(), .timing = {}};
  }
}

// Ends after the first failure: its error may stay with the process.
[[noreturn]] void Work(const std::vector<Case>& cases, std::size_t first, const RunOptions& options, int pipe) {
  try {
    const DeviceFacts facts = ReadDeviceFacts();
    Timer timer(facts);
    WriteLine(pipe, LineOf(facts));
    for (std::size_t i = first; i < cases.size(); ++i) {
      const Outcome outcome = RunCase(cases[i], options, timer);
      WriteLine(pipe, LineOf(outcome));
      if (outcome.status == Status::kFailed) _exit(1);
    }
  } catch (const std::exception& failure) {
    WriteLine(pipe, json{{"no_device", failure.what()}}.dump());
    _exit(1);
  }
  _exit(0);
}

// ---- The caller's side.

class Worker {
 public:
  Worker(const std::vector<Case>& cases, std::size_t first, const RunOptions& options) {
    int ends[2];
    if (pipe(ends) != 0) return;
    process_ = fork();
    if (process_ == 0) {
      close(ends[0]);
      Work(cases, first, options, ends[1]);
    }
    close(ends[1]);
    pipe_ = ends[0];
  }
  // Its end, by force where it has not come to it.
  ~Worker() { static_cast<void>(End()); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Nothing where it ended or kept silent for too long.
  std::optional<json> ReadLine(int timeout_seconds) {
    for (;;) {
      const std::size_t end = unread_.find('\n');
      if (end != std::string::npos) {
        const json line = json::parse(unread_.substr(0, end), nullptr, false);
        unread_.erase(0, end + 1);
        if (line.is_discarded()) return std::nullopt;
        return line;
      }
      pollfd ready = {.fd = pipe_, .events = POLLIN, .revents = 0};
      if (pipe_ < 0 || poll(&ready, 1, timeout_seconds * 1000) <= 0) return std::nullopt;
      char bytes[4096];
      const ssize_t count = read(pipe_, bytes, sizeof bytes);
      if (count <= 0) return std::nullopt;
      unread_.append(bytes, static_cast<std::size_t>(count));
    }
  }

  // How it ended, in words.
  std::string End() {
    if (pipe_ >= 0) close(std::exchange(pipe_, -1));
    const pid_t process = std::exchange(process_, -1);
    if (process <= 0) return "no process could be started";
    kill(process, SIGKILL);
    int status = 0;
    waitpid(process, &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return "took too long";
    if (WIFSIGNALED(status)) return std::string("ended by ") + strsignal(WTERMSIG(status));
    return "ended with status " + std::to_string(WEXITSTATUS(status));
  }

 private:
  pid_t process_ = -1;
  int pipe_ = -1;
  std::string unread_;
};

}  // namespace

bool RunCases(const std::vector<Case>& cases, const RunOptions& options,
              const std::function<void(const DeviceFacts&, const Outcome&)>& told, std::string* error) {
  std::size_t next = 0;
  std::fflush(nullptr);  // nothing is printed twice
  do {
    Worker worker(cases, next, options);
    const std::optional<json> greeting = worker.ReadLine(options.case_seconds);
    if (!greeting.has_value() || !greeting->contains("device")) {
      *error = greeting.has_value() ? greeting->value("no_device", "?") : worker.End();
      return false;
    }
    const DeviceFacts facts = DeviceOf(greeting->at("device"));
    while (next < cases.size()) {
      const std::optional<json> line = worker.ReadLine(options.case_seconds);
      const Outcome outcome =
          line.has_value() ? OutcomeOf(*line) : Outcome{.status = Status::kFailed, .note = worker.End(), .timing = {}};
      told(facts, outcome);
      ++next;
      if (outcome.status == Status::kFailed) break;
    }
  } while (next < cases.size());
  return true;
}

}  // namespace berth::bench
