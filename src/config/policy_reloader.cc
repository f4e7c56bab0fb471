#include "config/policy_reloader.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "config/file_watch.h"

namespace berth {

// The thread: waits for changes and for requests.
class PolicyReloader::Watcher {
 public:
  explicit Watcher(PolicyReloader* reloader) : reloader_(*reloader) {}
  ~Watcher() {
    stop_ = true;
    Wake();
    if (thread_.joinable()) thread_.join();
    if (wake_fd_ >= 0) ::close(wake_fd_);
  }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  absl::Status Start(bool watch) {
    wake_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (wake_fd_ < 0) return absl::ResourceExhaustedError(absl::StrCat("eventfd: ", std::strerror(errno)));
    if (watch) {
      absl::StatusOr<FileWatch> files = FileWatch::Make();
      if (!files.ok()) return files.status();
      watch_.emplace(*std::move(files));
      if (absl::Status watched = watch_->SetFiles(reloader_.Files()); !watched.ok()) return watched;
    }
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  void RequestReload() {
    requested_ = true;
    Wake();
  }

 private:
  void Wake() {
    const std::uint64_t one = 1;
    if (wake_fd_ >= 0 && ::write(wake_fd_, &one, sizeof(one)) < 0) {
      // The counter is at its top: the thread is awake already.
    }
  }

  void Run() {
    while (!stop_) {
      if (watch_) TakeChangesIn();
      const bool changed = WaitFor(-1);
      if (stop_) return;
      if (requested_.exchange(false)) reloader_.Reload({});
      if (changed) Settle();
    }
  }

  // True if files may have changed, false if woken or, after `timeout_ms`, neither.
  bool WaitFor(int timeout_ms) {
    std::array<pollfd, 2> fds = {{{wake_fd_, POLLIN, 0}, {watch_ ? watch_->fd() : -1, POLLIN, 0}}};
    if (::poll(fds.data(), fds.size(), timeout_ms) <= 0) return false;
    if ((fds[0].revents & POLLIN) != 0) {
      std::uint64_t count = 0;
      if (::read(wake_fd_, &count, sizeof(count)) < 0) return false;
    }
    if ((fds[1].revents & POLLIN) == 0) return false;
    watch_->Drain();
    return true;
  }

  // Until the files are left alone. A file that never is, is read all the same.
  void Settle() {
    constexpr int kMostRounds = 25;
    const auto pause = std::chrono::duration_cast<std::chrono::milliseconds>(reloader_.options_.settle_time);
    for (int round = 0; round < kMostRounds && !stop_ && WaitFor(static_cast<int>(pause.count())); ++round) {
    }
  }

  // The folders are watched before the files are read, so that no change falls between; a reload may name other files.
  void TakeChangesIn() {
    do {
      // What could not be watched at the start was told then; later a reload can still be asked for by name.
      watch_->SetFiles(reloader_.Files()).IgnoreError();
    } while (!stop_ && reloader_.ReloadIfChanged());
  }

  PolicyReloader& reloader_;
  std::optional<FileWatch> watch_;
  int wake_fd_ = -1;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> requested_ = false;
  std::thread thread_;
};

PolicyReloader::PolicyReloader(Options options, PolicyFile running, Override override_config, Apply apply,
                               Listener listener)
    : options_(std::move(options)),
      override_(std::move(override_config)),
      apply_(std::move(apply)),
      listener_(std::move(listener)),
      running_(std::move(running)),
      looked_at_(running_.files) {}

PolicyReloader::~PolicyReloader() = default;

absl::Status PolicyReloader::Start(bool watch) {
  watcher_ = std::make_unique<Watcher>(this);
  return watcher_->Start(watch);
}

void PolicyReloader::RequestReload() {
  if (watcher_ != nullptr) watcher_->RequestReload();
}

std::string PolicyReloader::running_sha256() const {
  const std::lock_guard lock(mutex_);
  return running_.sha256;
}

std::vector<std::string> PolicyReloader::Files() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> files;
  for (const auto& [path, digest] : looked_at_) files.push_back(path);
  return files;
}

FileDigests PolicyReloader::Scan() const {
  FileDigests now;
  for (const auto& [path, digest] : looked_at_) now[path] = DigestOf(ReadConfigFile(path));
  return now;
}

bool PolicyReloader::ReloadIfChanged() {
  {
    const std::lock_guard lock(mutex_);
    if (Scan() == looked_at_) return false;
  }
  Reload({});
  return true;
}

// What the file would do. Everything is decided here; nothing is changed.
ReloadReport PolicyReloader::Judge(const ReloadRequest& request, PolicyFile* next) {
  ReloadReport report;
  report.dry_run = request.dry_run;
  const bool own = !request.dry_run || !request.text.has_value();
  Diagnostics diagnostics(own ? options_.path : "policy");
  *next = own ? ReadPolicyFile(options_.path, Severity::kError, &diagnostics)
              : ReadPolicyText(*request.text, options_.path, Severity::kError, &diagnostics);
  report.sha256 = next->sha256;
  if (!request.expected_sha256.empty() && request.expected_sha256 != next->sha256) {
    diagnostics.Error("", absl::StrCat("the file's SHA-256 is ", next->sha256.empty() ? "unknown" : next->sha256,
                                       ", not the expected ", Shown(request.expected_sha256)));
  }
  if (diagnostics.ok()) {
    if (override_) override_(&next->config);
    report.changes = CompareConfigs(running_.config, next->config);
    RefuseRestartKeys(report.changes, &diagnostics);
  }
  std::optional<Policy> resolved;
  if (diagnostics.ok()) resolved = ResolvePolicy(next->config, options_.context, &diagnostics);
  report.findings = diagnostics.Lines();
  absl::Status fault;
  if (!resolved) fault = absl::InvalidArgumentError(diagnostics.Summary());
  if (fault.ok() && options_.check) fault = options_.check(next->config, *resolved);
  report.ok = fault.ok();
  if (report.ok) report.policy = std::move(resolved);
  if (!report.ok) {
    report.error =
        absl::StrCat(diagnostics.file(), ": ", std::string(fault.message()), "; the running policy stays in force");
  }
  return report;
}

ReloadReport PolicyReloader::Reload(const ReloadRequest& request) {
  const std::lock_guard lock(mutex_);
  // Before the file is read, so that a change of what it is not made of is looked at again.
  FileDigests looked_at = Scan();
  PolicyFile next;
  ReloadReport report = Judge(request, &next);
  if (request.dry_run) return report;
  if (report.ok) {
    if (const absl::Status applied = apply_(next.config, *report.policy); !applied.ok()) {
      report.ok = false;
      report.error =
          absl::StrCat(options_.path, ": ", std::string(applied.message()), "; the running policy stays in force");
    }
  }
  for (const auto& [path, digest] : next.files) looked_at[path] = digest;
  looked_at_ = report.ok ? next.files : std::move(looked_at);
  if (report.ok) running_ = std::move(next);
  if (listener_) listener_(report);
  return report;
}

}  // namespace berth
