#include "cli/batch_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/input.h"

namespace berth::cli {
namespace {

// Longer than any answer with log-probabilities; what is longer was not written by us.
constexpr std::int64_t kMaxAnswerBytes = 1LL << 30;

// 0, or what went wrong.
int WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = write(fd, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return wrote < 0 ? errno : EIO;
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return 0;
}

int CopyRange(int from, int to, std::int64_t begin, std::int64_t end) {
  std::string chunk(1 << 20, '\0');
  while (begin < end) {
    const auto want = static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(chunk), end - begin));
    const ssize_t got = pread(from, chunk.data(), want, begin);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 ? errno : EIO;
    if (const int error = WriteAll(to, std::string_view(chunk.data(), static_cast<std::size_t>(got))); error != 0) {
      return error;
    }
    begin += got;
  }
  return 0;
}

// Whether `path` still leads to the file that was opened: a run that ended a moment ago may have replaced it.
bool IsAt(const std::string& path, int fd) {
  struct stat opened {};
  struct stat named {};
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

// The beginning of a line of ours.
bool IsTorn(std::string_view line) {
  constexpr std::string_view kBeginning = "{\"index\":";
  return line.substr(0, kBeginning.size()) == kBeginning.substr(0, line.size());
}

absl::Status Foreign(const std::string& where, const std::string& why) {
  return absl::FailedPreconditionError(where + " is no answer of 'berth batch' (" + why +
                                       "): give another file with -o, or --overwrite to lose what it holds");
}

}  // namespace

absl::Status BatchOutput::Failure(const std::string& what) const {
  return absl::InvalidArgumentError("cannot " + what + " " + path_ + ": " + std::strerror(errno));
}

absl::StatusOr<std::unique_ptr<BatchOutput>> BatchOutput::OpenFile(const std::string& path) {
  for (;;) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    struct stat info {};
    const bool is_file = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    std::unique_ptr<BatchOutput> output(new BatchOutput(path, fd, is_file));
    if (fd < 0) return output->Failure("write to");
    if (!is_file) return output;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return output->Failure("lock");
      return absl::FailedPreconditionError("another run writes to " + path + ": wait for its end, or give another -o");
    }
    if (IsAt(path, fd)) return output;
  }
}

absl::StatusOr<std::unique_ptr<BatchOutput>> BatchOutput::Open(const std::string& path, bool overwrite) {
  if (path == "-") return std::unique_ptr<BatchOutput>(new BatchOutput("standard output", dup(STDOUT_FILENO), false));
  absl::StatusOr<std::unique_ptr<BatchOutput>> output = OpenFile(path);
  if (!output.ok() || !(*output)->is_file_) return output;
  if (overwrite) {
    if (ftruncate((*output)->fd_, 0) != 0) return (*output)->Failure("empty");
  } else if (absl::Status status = (*output)->TakeIn(); !status.ok()) {
    return status;
  }
  return output;
}

BatchOutput::~BatchOutput() {
  if (fd_ >= 0) close(fd_);
}

absl::Status BatchOutput::TakeIn() {
  const int fd = dup(fd_);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(fdopen(fd, "rb"), &std::fclose);
  if (file == nullptr) return Failure("read");
  LineReader lines(file.get(), path_, kMaxAnswerBytes);
  for (;;) {
    const absl::StatusOr<std::optional<std::string_view>> line = lines.Next();
    if (!line.ok()) return absl::Status(line.status().code(), path_ + ": " + std::string(line.status().message()));
    if (!line->has_value()) break;
    const std::string where = path_ + " line " + std::to_string(lines.line_number());
    if (!lines.ended_with_newline()) return IsTorn(**line) ? absl::OkStatus() : Foreign(where, "it has no end");
    bool is_error = false;
    if (absl::Status status = TakeInLine(where, **line, &is_error); !status.ok()) return status;
    const std::int64_t begin = end_;
    end_ += std::ssize(**line) + 1;
    if (is_error) errors_.push_back({begin, end_});
  }
  return absl::OkStatus();
}

absl::Status BatchOutput::TakeInLine(const std::string& where, std::string_view line, bool* is_error) {
  const absl::StatusOr<nlohmann::json> object = ParseJsonObject(line);
  if (!object.ok()) return Foreign(where, std::string(object.status().message()));
  const auto index = object->find("index");
  if (index == object->end() || !index->is_number_unsigned()) return Foreign(where, "it has no \"index\"");
  if (object->contains("error")) {
    *is_error = true;
    return absl::OkStatus();
  }
  const auto hash = object->find("request_hash");
  if (hash == object->end() || !hash->is_string()) return Foreign(where, "it has no \"request_hash\"");
  if (!answers_.emplace(index->get<std::int64_t>(), hash->get<std::string>()).second) {
    return Foreign(where, "index " + index->dump() + " was answered before");
  }
  last_index_ = std::max(last_index_, index->get<std::int64_t>());
  return absl::OkStatus();
}

absl::Status BatchOutput::DropUnanswered() {
  if (!is_file_) return absl::OkStatus();
  if (!errors_.empty()) return Rewrite();
  return ftruncate(fd_, end_) == 0 ? absl::OkStatus() : Failure("write to");
}

// Killed at any time, the old file or the new one is there, whole. Where the path is a link, it stays one.
absl::Status BatchOutput::Rewrite() {
  std::error_code no_path;
  const std::string real_path = std::filesystem::canonical(path_, no_path).string();
  const std::string temporary = real_path + ".tmp";
  const int fd = open(temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return absl::InvalidArgumentError("cannot write to " + temporary + ": " + std::strerror(errno));
  struct stat info {};
  errno = CopyAnswers(fd);
  const bool done = errno == 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd_, &info) == 0 &&
                    fchmod(fd, info.st_mode & 07777) == 0 && fsync(fd) == 0 &&
                    std::rename(temporary.c_str(), real_path.c_str()) == 0;
  if (!done) {
    absl::Status failure = Failure("rewrite");
    unlink(temporary.c_str());
    close(fd);
    return failure;
  }
  close(std::exchange(fd_, fd));
  return absl::OkStatus();
}

int BatchOutput::CopyAnswers(int to) const {
  std::int64_t begin = 0;
  for (const Range& error : errors_) {
    if (const int fault = CopyRange(fd_, to, begin, error.begin); fault != 0) return fault;
    begin = error.end;
  }
  return CopyRange(fd_, to, begin, end_);
}

BatchOutput::Found BatchOutput::Find(std::int64_t index, const std::string& request_hash) const {
  const auto found = answers_.find(index);
  if (found == answers_.end()) return Found::kNothing;
  return found->second == request_hash ? Found::kAnswer : Found::kOtherAnswer;
}

absl::Status BatchOutput::Append(const Json& line) {
  const std::string text = DumpJson(line) + "\n";
  const std::lock_guard lock(mutex_);
  if (error_ == 0) {
    const off_t before = is_file_ ? lseek(fd_, 0, SEEK_END) : 0;
    error_ = WriteAll(fd_, text);
    if (error_ != 0 && is_file_ && ftruncate(fd_, before) != 0) error_ = errno;
  }
  errno = error_;
  return error_ == 0 ? absl::OkStatus() : Failure("write to");
}

bool BatchOutput::closed() const {
  const std::lock_guard lock(mutex_);
  return error_ == EPIPE;
}

absl::Status BatchOutput::Sync() {
  const std::lock_guard lock(mutex_);
  return !is_file_ || fsync(fd_) == 0 ? absl::OkStatus() : Failure("write to");
}

}  // namespace berth::cli
