// The shared memory of the running block.
#pragma once

#include <cstddef>
#include <vector>

namespace berth::emulation {

// Every byte begins as 0xff, which is a NaN in each of the float types. Pieces have space between them that
// AddressSanitizer guards.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { Unmap(); }

  // Fresh memory for the next block.
  void Begin(std::size_t dynamic_bytes);
  // Null when all the blocks' static memory is used up.
  void* Static(const void* key, std::size_t bytes, std::size_t alignment);
  std::byte* dynamic() const { return dynamic_; }
  std::size_t dynamic_bytes() const { return dynamic_bytes_; }
  std::size_t static_bytes() const { return static_bytes_; }
  bool Holds(const void* address, std::size_t bytes) const;

 private:
  struct Piece {
    const void* key;
    std::byte* begin;
    std::size_t bytes;
  };

  void Map(std::size_t bytes);
  void Unmap();
  std::byte* Carve(std::size_t bytes, std::size_t alignment);

  std::byte* memory_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::size_t used_bytes_ = 0;  // from the beginning of the memory
  std::byte* dynamic_ = nullptr;
  std::size_t dynamic_bytes_ = 0;
  std::size_t static_bytes_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace berth::emulation
