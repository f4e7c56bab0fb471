// The memory that a program got from the runtime.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace berth::emulation {

enum class MemoryKind { kDevice, kPinned, kPageable };

// Device memory begins as NaN and ends in bytes that are watched: AddressSanitizer reports an access to them, and
// without it a write is a fault at the next synchronisation.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { FreeAll(); }

  // Null when there is no room. bytes > 0.
  void* Allocate(MemoryKind kind, std::size_t bytes);
  // False for what is not the beginning of an allocation of this kind.
  bool Free(MemoryKind kind, void* address);
  void FreeAll();

  // Nothing where the range leaves the allocation in which it begins.
  std::optional<MemoryKind> KindOf(const void* address, std::size_t bytes) const;
  void CheckGuards() const;

  std::size_t device_bytes() const { return device_bytes_; }
  std::size_t pinned_bytes() const { return pinned_bytes_; }

 private:
  struct Allocation {
    MemoryKind kind;
    std::size_t bytes;
  };

  std::map<std::byte*, Allocation> allocations_;
  std::size_t device_bytes_ = 0;
  std::size_t pinned_bytes_ = 0;
};

}  // namespace berth::emulation
