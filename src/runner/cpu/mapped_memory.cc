#include "runner/cpu/mapped_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace berth {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kTooMuch = std::numeric_limits<std::size_t>::max();

}  // namespace

absl::StatusOr<MappedMemory> MappedMemory::Map(std::size_t bytes, std::string_view what) {
  const std::string name(what);
  if (bytes == kTooMuch) {
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

std::size_t MemoryLayout::Advance(std::size_t count, std::size_t times, std::size_t element_bytes) {
  const std::size_t at = bytes_;
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, times, &bytes) || __builtin_mul_overflow(bytes, element_bytes, &bytes) ||
      __builtin_add_overflow(bytes, kAlignment - 1, &bytes) ||
      __builtin_add_overflow(bytes / kAlignment * kAlignment, bytes_, &bytes_)) {
    bytes_ = kTooMuch;
  }
  return at;
}

}  // namespace berth
