#include "runner/cpu/mapped_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runner/memory_layout.h"

namespace berth {

absl::StatusOr<MappedMemory> MappedMemory::Map(std::size_t bytes, std::string_view what) {
  const std::string name(what);
  if (bytes == MemoryLayout::kTooMuch) {
    return absl::ResourceExhaustedError(absl::StrCat(name, " would take more bytes than there are addresses"));
  }
  MappedMemory memory;
  if (bytes == 0) return memory;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1,
                    /*offset=*/0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no room for the ", bytes, " bytes of ", name, ": ", std::strerror(errno)));
  }
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = bytes;
  return memory;
}

MappedMemory::MappedMemory(MappedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedMemory::~MappedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

void MappedMemory::PreferLargePages() {
  // Advice: where the system has none, small pages serve as well.
  if (data_ != nullptr) static_cast<void>(madvise(data_, bytes_, MADV_HUGEPAGE));
}

}  // namespace berth
