#include "config/file_watch.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace berth {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // as many as the kernel follows
constexpr int kMostRounds = 8;

// What tells that a folder's path may lead to another folder soon.
constexpr std::uint32_t kSelfEvents = IN_MOVE_SELF | IN_DELETE_SELF | IN_ONLYDIR | IN_MASK_ADD;
constexpr std::uint32_t kEvents =
    IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_ATTRIB | kSelfEvents;

// The folder itself, or where it is not there the nearest one above it that is, in which it would come back.
fs::path NearestFolder(fs::path folder) {
  std::error_code error;
  while (!fs::is_directory(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  return folder;
}

}  // namespace

std::set<std::string> FoldersBehind(const std::string& path) {
  std::set<std::string> folders;
  std::error_code error;
  fs::path whole = fs::absolute(path, error).lexically_normal();
  // Each round resolves the first link on the way; without one, the way is the file's own.
  for (int links = 0; links < kMostLinks; ++links) {
    fs::path walked;
    fs::path target;
    for (auto part = whole.begin(); part != whole.end(); ++part) {
      walked /= *part;
      if (!fs::is_symlink(walked, error)) continue;
      folders.insert(walked.parent_path().string());
      target = walked.parent_path() / fs::read_symlink(walked, error);
      for (++part; part != whole.end(); ++part) target /= *part;
      break;
    }
    if (target.empty()) break;
    whole = target.lexically_normal();
  }
  folders.insert(NearestFolder(whole.parent_path()).string());
  return folders;
}

absl::StatusOr<FileWatch> FileWatch::Make() {
  const int fd = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (fd < 0) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot watch files: ", std::strerror(errno),
                                                     "; raise fs.inotify.max_user_instances, or set reload: signal"));
  }
  return FileWatch(fd);
}

FileWatch::~FileWatch() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status FileWatch::SetFiles(const std::vector<std::string>& files) {
  absl::Status status;
  std::set<std::string> watched;
  // Until nothing on the way has changed since it was looked at: a folder may come while the one above it is not yet
  // watched.
  for (int round = 0; round < kMostRounds; ++round) {
    std::set<std::string> folders;
    for (const std::string& file : files) folders.merge(FoldersBehind(file));
    if (folders == watched) break;
    status = absl::OkStatus();
    for (const std::string& folder : folders) status.Update(Watch(folder));
    watched = std::move(folders);
  }
  return status;
}

absl::Status FileWatch::Watch(const std::string& folder) {
  // A folder that is moved away takes along what is below it, which is not told. One above that may not be read is let
  // be: few may move it either.
  for (fs::path above = fs::path(folder).parent_path(); above.has_relative_path(); above = above.parent_path()) {
    ::inotify_add_watch(fd_, above.c_str(), kSelfEvents);
  }
  // A folder that is watched already keeps its watch.
  if (::inotify_add_watch(fd_, folder.c_str(), kEvents) >= 0 || errno == ENOENT) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("cannot watch ", folder, ": ", std::strerror(errno),
                                                   "; raise fs.inotify.max_user_watches, or set reload: signal"));
}

void FileWatch::Drain() {
  std::array<char, 4096> events;
  while (::read(fd_, events.data(), events.size()) > 0) {
  }
}

}  // namespace berth
