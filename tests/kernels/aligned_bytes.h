// Memory of exactly the asked size from an address that is a multiple of 64: one byte too far is for AddressSanitizer
// to see.
#pragma once

#include <cstddef>
#include <new>
#include <span>

namespace berth::test {

class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t size)
      : data_(static_cast<std::byte*>(::operator new (size, std::align_val_t{64}))), size_(size) {
    for (std::size_t i = 0; i < size; ++i) data_[i] = std::byte{0xA5};
  }
  ~AlignedBytes() { ::operator delete (data_, std::align_val_t{64}); }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;

  std::byte* data() { return data_; }
  std::size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* data_;
  std::size_t size_;
};

}  // namespace berth::test
