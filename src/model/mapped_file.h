// A whole file mapped for reading.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace berth {

// Moves only. The bytes stay where they are for the life of the object that owns the mapping. A file that another
// process cuts short while it is mapped ends the reader with SIGBUS: replace model files by renaming, never in place.
class MappedFile {
 public:
  // NotFound, PermissionDenied, or InvalidArgument for what is no regular file or is empty; the message names the path.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

}  // namespace berth
