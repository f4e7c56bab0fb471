// Notices that files may have changed, however they are replaced.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace berth {

// Folders in which a change can replace the content of `path`: the one that holds it, and for each link on the way the
// one that holds the link. So an editor's rename over the file, Kubernetes' swap of `..data` and a "current" link to a
// release are all seen. Bounded; for a folder that is not there, the nearest one above it that is.
std::set<std::string> FoldersBehind(const std::string& path);

// Watches folders with inotify, never files: a file that is replaced would take its watch along. That a folder on the
// way is moved or removed is told too, so that the one that takes its place can be watched. Not thread-safe.
class FileWatch {
 public:
  static absl::StatusOr<FileWatch> Make();
  FileWatch(FileWatch&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FileWatch& operator=(FileWatch&&) = delete;
  ~FileWatch();

  // From now on whatever happens beside these files, and on the way to them, makes fd() readable. What is watched
  // already stays watched; call it again after a change, as links may lead elsewhere now. An error where a folder that
  // is there cannot be watched; the others are.
  absl::Status SetFiles(const std::vector<std::string>& files);

  int fd() const { return fd_; }
  // Takes what has happened; fd() is no longer readable.
  void Drain();

 private:
  explicit FileWatch(int fd) : fd_(fd) {}
  absl::Status Watch(const std::string& folder);

  int fd_;
};

}  // namespace berth
