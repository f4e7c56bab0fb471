#include "config/file_watch.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace berth {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // as many as the kernel follows

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
  folders.insert(whole.parent_path().string());
  std::erase_if(folders, [&](const std::string& folder) { return !fs::is_directory(folder, error); });
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
  constexpr std::uint32_t kEvents =
      IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_ATTRIB | IN_DELETE_SELF | IN_ONLYDIR;
  absl::Status status;
  for (const std::string& file : files) {
    for (const std::string& folder : FoldersBehind(file)) {
      // A folder that is watched already keeps its watch.
      if (::inotify_add_watch(fd_, folder.c_str(), kEvents) >= 0 || errno == ENOENT) continue;
      status.Update(absl::ResourceExhaustedError(absl::StrCat("cannot watch ", folder, ": ", std::strerror(errno),
                                                              "; raise fs.inotify.max_user_watches, or set reload: "
                                                              "signal")));
    }
  }
  return status;
}

void FileWatch::Drain() {
  std::array<char, 4096> events;
  while (::read(fd_, events.data(), events.size()) > 0) {
  }
}

}  // namespace berth
