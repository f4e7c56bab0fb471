// Sizing and use of a block of memory as one code path: lay the parts out once to learn the size, get the memory, and
// lay them out again.
#pragma once

#include <cstddef>

namespace berth {

// Hands out aligned parts of one block. Without a base it only counts.
class MemoryLayout {
 public:
  static constexpr std::size_t kCacheLine = 64;
  // What bytes() is when the parts do not fit any address.
  static constexpr std::size_t kTooMuch = ~std::size_t{0};

  // REQUIRES: base at a multiple of `alignment`, a power of two.
  explicit MemoryLayout(std::byte* base = nullptr, std::size_t alignment = kCacheLine)
      : base_(base), alignment_(alignment) {}

  // nullptr while counting. An overflowing size sticks: bytes() is then kTooMuch.
  template <typename T>
  T* Take(std::size_t count, std::size_t times = 1) {
    const std::size_t at = Advance(count, times, sizeof(T));
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }

  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t Advance(std::size_t count, std::size_t times, std::size_t element_bytes);

  std::byte* base_;
  std::size_t alignment_;
  std::size_t bytes_ = 0;
};

}  // namespace berth
