// Takes a changed policy file in while the server runs: whole, or not at all.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "berth/clock.h"
#include "berth/policy.h"
#include "config/policy_diff.h"
#include "config/policy_file.h"
#include "config/resolve_policy.h"

namespace berth {

struct ReloadRequest {
  bool dry_run = false;
  std::string expected_sha256 = {};  // refuse a file with another content; empty = any
  // With dry_run: judged in the place of what the file holds. In findings it is called "policy".
  std::optional<std::string> text = {};
};

struct ReloadReport {
  bool ok = false;  // the file is in force, or with dry_run could be
  bool dry_run = false;
  std::string sha256;  // of the file that was read; empty where it could not be
  std::vector<Change> changes;
  std::vector<std::string> findings;  // errors and warnings, a line each
  std::string error;                  // one line; empty where ok
  std::optional<Policy> policy;       // what the file comes to; where ok
};

class PolicyReloader {
 public:
  struct Options {
    std::string path;
    PolicyContext context;  // of the pool and the model that run
    // Says what else makes a configuration one that this server cannot take; asked in a dry run too. May be empty.
    std::function<absl::Status(const ServerConfig& config, const Policy& policy)> check = {};
    // Files must have been left alone for so long before they are read.
    Duration settle_time = std::chrono::milliseconds(200);
  };
  // What the command line says beyond the file; runs on each new configuration. May be empty.
  using Override = std::function<void(ServerConfig* config)>;
  // Puts a policy in force, or says why it cannot be; then nothing has changed. Calls never overlap, and neither this
  // nor the listener may call the reloader.
  using Apply = std::function<absl::Status(const ServerConfig& config, const Policy& policy)>;
  // Told of every reload that was no dry run, once it is decided.
  using Listener = std::function<void(const ReloadReport& report)>;

  // `running`: what was read when the server started, override included.
  PolicyReloader(Options options, PolicyFile running, Override override_config, Apply apply, Listener listener);
  ~PolicyReloader();  // waits for a reload that is going on
  PolicyReloader(const PolicyReloader&) = delete;
  PolicyReloader& operator=(const PolicyReloader&) = delete;

  // Starts the thread that serves RequestReload and, with `watch`, takes changes of the files in as they come. At most
  // once. What changed since the server started is taken in first.
  absl::Status Start(bool watch);

  // A reload soon, on that thread; returns at once. For SIGHUP. Thread-safe.
  void RequestReload();

  // A reload now. Thread-safe.
  ReloadReport Reload(const ReloadRequest& request);

  // Of the file in force. Thread-safe.
  std::string running_sha256() const;

 private:
  class Watcher;

  ReloadReport Judge(const ReloadRequest& request, PolicyFile* next);
  // Takes the files in if their content is not what was last looked at; true if it was not.
  bool ReloadIfChanged();
  // What the files that were looked at hold now.
  FileDigests Scan() const;
  std::vector<std::string> Files() const;

  const Options options_;
  const Override override_;
  const Apply apply_;
  const Listener listener_;

  mutable std::mutex mutex_;
  PolicyFile running_;     // guarded by mutex_
  FileDigests looked_at_;  // the files that matter, as they were last read; guarded by mutex_

  std::unique_ptr<Watcher> watcher_;  // last: its thread uses the rest
};

}  // namespace berth
