// Anonymous memory whose pages cost nothing until they are touched.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"

namespace berth {

class MappedMemory {
 public:
  // Zero-filled, page-aligned. ResourceExhausted naming `what` and the bytes where the system has no such range.
  static absl::StatusOr<MappedMemory> Map(std::size_t bytes, std::string_view what);

  MappedMemory() = default;
  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory&& other) noexcept;
  ~MappedMemory();

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

  // Asks for large pages: fewer address translations for memory that will all be used.
  void PreferLargePages();

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Hands out 64-byte aligned parts of one mapping. Without a base it only counts, so that sizing and use are one code
// path: lay the parts out once to learn the size, map it, and lay them out again.
class MemoryLayout {
 public:
  explicit MemoryLayout(std::byte* base = nullptr) : base_(base) {}

  // nullptr while counting. An overflowing size sticks: bytes() is then the largest std::size_t.
  template <typename T>
  T* Take(std::size_t count, std::size_t times = 1) {
    const std::size_t at = Advance(count, times, sizeof(T));
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }

  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t Advance(std::size_t count, std::size_t times, std::size_t element_bytes);

  std::byte* base_;
  std::size_t bytes_ = 0;
};

}  // namespace berth
