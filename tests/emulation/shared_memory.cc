#include "emulation/shared_memory.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "emulation/block.h"
#include "emulation/sanitizers.h"

namespace berth::emulation {
namespace {

constexpr int kFresh = 0xff;
// Declared alignment of dynamic shared memory. It begins at an odd multiple, so that nothing relies on more.
constexpr std::size_t kDynamicAlignment = 128;
constexpr std::size_t kGuardBytes = 64;
// Room for each piece's guard and alignment.
constexpr std::size_t kSlackBytes = 16 * 1024;

std::size_t RoundUp(std::size_t value, std::size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

void SharedMemory::Begin(std::size_t dynamic_bytes) {
  const std::size_t bytes = dynamic_bytes + kDefaultSharedBytes + kSlackBytes;
  // For ThreadSanitizer each block has memory of its own: new pages have no history, so that blocks do not seem to
  // race.
  if (kThreadSanitizer || bytes > mapped_bytes_) {
    Unmap();
    Map(bytes);
  } else {
    Unpoison(memory_, used_bytes_);
    std::memset(memory_, kFresh, used_bytes_);
  }
  Poison(memory_, mapped_bytes_);
  used_bytes_ = kDynamicAlignment;
  pieces_.clear();
  dynamic_bytes_ = dynamic_bytes;
  static_bytes_ = 0;
  dynamic_ = dynamic_bytes == 0 ? nullptr : Carve(dynamic_bytes, kDynamicAlignment);
}

void SharedMemory::Map(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("emulation: no memory for the shared memory of a block");
    std::abort();
  }
  memory_ = static_cast<std::byte*>(memory);
  mapped_bytes_ = bytes;
  std::memset(memory_, kFresh, mapped_bytes_);
}

void SharedMemory::Unmap() {
  if (memory_ == nullptr) return;
  Unpoison(memory_, mapped_bytes_);
  munmap(memory_, mapped_bytes_);
  memory_ = nullptr;
}

void* SharedMemory::Static(const void* key, std::size_t bytes, std::size_t alignment) {
  for (const Piece& piece : pieces_) {
    if (piece.key == key) return piece.begin;
  }
  static_bytes_ += bytes;
  if (static_bytes_ > kDefaultSharedBytes || used_bytes_ + bytes + 2 * kGuardBytes + alignment > mapped_bytes_) {
    return nullptr;
  }
  pieces_.push_back({key, Carve(bytes, alignment), bytes});
  return pieces_.back().begin;
}

std::byte* SharedMemory::Carve(std::size_t bytes, std::size_t alignment) {
  const std::size_t begin = RoundUp(used_bytes_, alignment);
  used_bytes_ = begin + bytes + kGuardBytes;
  Unpoison(memory_ + begin, bytes);
  return memory_ + begin;
}

bool SharedMemory::Holds(const void* address, std::size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(address);
  const auto within = [=](const std::byte* piece, std::size_t piece_bytes) {
    return begin >= piece && begin + bytes <= piece + piece_bytes;
  };
  if (within(dynamic_, dynamic_bytes_)) return true;
  for (const Piece& piece : pieces_) {
    if (within(piece.begin, piece.bytes)) return true;
  }
  return false;
}

}  // namespace berth::emulation
