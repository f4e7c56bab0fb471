#include "cli/signals.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <utility>

#include "base/check.h"

namespace berth::cli {

SignalWatcher::SignalWatcher(Hangup hangup) : hangup_(hangup) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGHUP);
  BERTH_CHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC);
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  BERTH_CHECK(signal_fd_ >= 0 && stop_fd_ >= 0);
  thread_ = std::thread([this] { Run(); });
}

SignalWatcher::~SignalWatcher() {
  const std::uint64_t one = 1;
  BERTH_CHECK(write(stop_fd_, &one, sizeof(one)) == sizeof(one));
  thread_.join();
  close(signal_fd_);
  close(stop_fd_);
}

void SignalWatcher::SetHandler(std::function<void(int signal)> on_first) {
  const std::lock_guard lock(mutex_);
  on_first_ = std::move(on_first);
}

void SignalWatcher::SetHangupHandler(std::function<void()> on_hangup) {
  BERTH_CHECK(hangup_ == Hangup::kIsHandled);
  const std::lock_guard lock(mutex_);
  on_hangup_ = std::move(on_hangup);
  if (on_hangup_ && std::exchange(hangup_kept_, false)) on_hangup_();
}

void SignalWatcher::Run() {
  std::array<pollfd, 2> wanted = {{{signal_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}}};
  for (;;) {
    if (poll(wanted.data(), wanted.size(), -1) < 0) {
      BERTH_CHECK(errno == EINTR);
      continue;
    }
    if (wanted[1].revents != 0) return;
    signalfd_siginfo info{};
    if (read(signal_fd_, &info, sizeof(info)) != sizeof(info)) continue;
    const int signal = static_cast<int>(info.ssi_signo);
    const std::lock_guard lock(mutex_);
    if (signal == SIGHUP && hangup_ == Hangup::kIsHandled) {
      if (on_hangup_) {
        on_hangup_();
      } else {
        hangup_kept_ = true;
      }
      continue;
    }
    // Nothing is flushed or destroyed on this way out: whoever asks twice wants no more waiting.
    if (handled_ || !on_first_) _exit(128 + signal);
    handled_ = true;
    on_first_(signal);
  }
}

}  // namespace berth::cli
