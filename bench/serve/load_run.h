// A load on a server: closed loop, a Poisson process or a trace.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "load_stream.h"
#include "tally.h"
#include "telemetry/process_stats.h"
#include "workload.h"

namespace berth::bench {

struct LoadOptions {
  std::string server;  // "127.0.0.1:8433"
  int connections = 1;
  // One of the three.
  std::int64_t streams = 0;    // closed loop: each sends its next request once the last one has ended
  double rate = 0.0;           // open loop: requests a second
  std::vector<Arrival> trace;  // open loop
  double speed = 1.0;          // of the trace

  Duration warm_up{};         // before anything is measured
  Duration duration{};        // that is measured; zero = until `requests` have ended
  Duration drain{};           // for what was due in time and runs still
  std::int64_t requests = 0;  // stop sending after so many; 0 = no bound
  std::int64_t max_open = 0;  // open loop: an arrival that would be one more is not sent
  Duration timeout{};         // each call's gRPC deadline; zero = none
  std::vector<Slo> slos;      // by class of the workload's mix
  pid_t server_pid = 0;       // 0 = not known
};

struct ServerFacts {
  std::int32_t vocab_size = 0;
  std::int32_t context_tokens = 0;
  std::string default_class;
};
// Asks the server what it serves; an error where none answers.
absl::StatusOr<ServerFacts> AskServer(const std::string& address);

struct LoadResult {
  Duration measured{};
  double client_cpu_seconds = 0.0;  // both in the measured time
  double server_cpu_seconds = 0.0;
  std::int64_t server_peak_bytes = 0;
};

// The calls are gRPC's callback API: no thread for a stream, and whatever the server does, sending waits for nobody.
class LoadRun {
 public:
  // `workload` and `tallies`, one for each class of the mix, must outlive the run.
  LoadRun(LoadOptions options, Workload* workload, std::deque<Tally>* tallies);

  // Once. An error where a connection cannot be made.
  absl::Status Connect();
  LoadResult Run();

 private:
  using CallId = std::int64_t;

  void RunClosedLoop();
  void RunOpenLoop();
  void NextOfStream(std::int64_t stream);
  void Send(Job job, TimePoint due, std::int64_t stream);
  void Ended(CallId call, std::int64_t stream);
  bool MaySend(TimePoint at) const {
    return !over_ && at < window_.end && (options_.requests == 0 || sent_ < options_.requests);
  }
  // Sleeps until then, and notes what was used when the measured time began or ended on the way.
  void SleepUntil(TimePoint then);
  void NoteUse(ProcessStats* client, ProcessStats* server) const;
  void WaitForTheRest();

  const LoadOptions options_;
  Workload* const workload_;
  std::deque<Tally>* const tallies_;
  std::vector<std::unique_ptr<v1::Inference::Stub>> stubs_;
  Window window_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::unordered_map<CallId, std::shared_ptr<grpc::ClientContext>> open_;
  std::int64_t sent_ = 0;
  bool over_ = false;  // nothing more is sent

  // The thread's that runs.
  bool start_noted_ = false;
  ProcessStats client_before_;
  ProcessStats server_before_;
};

}  // namespace berth::bench
