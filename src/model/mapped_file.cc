#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace berth {
namespace {

absl::StatusOr<std::span<const std::byte>> Map(int fd, const std::string& path) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot read its size"));
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a directory, not a model file"));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file, so it cannot be mapped"));
  }
  if (info.st_size == 0) return absl::InvalidArgumentError(absl::StrCat(path, ": the file is empty"));
  const std::size_t size = static_cast<std::size_t>(info.st_size);
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (start == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot map ", size, " bytes"));
  return std::span<const std::byte>(static_cast<const std::byte*>(start), size);
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  // Not blocking: opening a FIFO that nobody writes would wait for ever.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot open"));
  absl::StatusOr<std::span<const std::byte>> bytes = Map(fd, path);
  ::close(fd);
  if (!bytes.ok()) return bytes.status();
  return MappedFile(*bytes);
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace berth
