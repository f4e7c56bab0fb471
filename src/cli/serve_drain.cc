#include "cli/serve_drain.h"

#include <unistd.h>

#include <csignal>
#include <thread>

#include <spdlog/spdlog.h>

#include "cli/outcome.h"

namespace berth::cli {
namespace {

const char* CauseName(int cause) {
  switch (cause) {
    case StopRequest::kByOperator:
      return "told by an operator";
    case SIGINT:
      return "SIGINT";
    case SIGHUP:
      return "SIGHUP";
    default:
      return "SIGTERM";
  }
}

}  // namespace

void StopRequest::Set(int cause) {
  const std::lock_guard lock(mutex_);
  if (cause_ == 0) cause_ = cause;
  set_.notify_all();
}

int StopRequest::Wait() {
  std::unique_lock lock(mutex_);
  set_.wait(lock, [this] { return cause_ != 0; });
  return cause_;
}

bool DrainServer(int cause, const DrainTimes& times, GrpcServer* server) {
  server->StartDraining();
  // Who presses Ctrl-C has no load balancer that must look away first.
  const Duration delay = cause == SIGINT ? Duration::zero() : times.delay.load();
  spdlog::info("{}: draining; newcomers are taken for {:.0f} s more; a second signal exits at once", CauseName(cause),
               ToSeconds(delay));
  std::this_thread::sleep_for(delay);
  const Duration timeout = times.timeout;
  spdlog::info("newcomers are refused; what runs may take {:.0f} s", ToSeconds(timeout));
  return server->Shutdown(timeout);
}

void ExitInMidStep() {
  spdlog::critical("the backend is in a step that does not end: exiting without it; what ran is lost");
  // Threads that never come back hold the engine: nothing can be destroyed.
  _exit(kExitFault);
}

}  // namespace berth::cli
