// cp.async: copies from global to shared memory that the thread does not wait for (PTX ISA, "Data Movement and
// Conversion Instructions: cp.async"). Their data are written as late as the instruction set allows, when the thread
// waits for their group; until then the destination holds NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulation/call_site.h"

namespace berth::emulation {

struct alignas(16) CopyChunk {
  std::byte data[16];
};

// A thread's copies, oldest first.
class CopyQueue {
 public:
  struct Copy {
    void* destination;
    std::size_t bytes;
    CopyChunk chunk;
  };

  void Clear();
  void Push(const Copy& copy);
  void Commit();
  // Takes the oldest copy of all groups but the newest `pending`; false when there is none.
  bool Pop(std::size_t pending, Copy* copy);

 private:
  std::vector<Copy> copies_;
  std::vector<std::size_t> groups_;  // where in copies_ each committed group ends
  std::size_t next_copy_ = 0;
  std::size_t next_group_ = 0;
};

// ---- For the running thread. What touches the kernel's memory is in this header, so that it is compiled, and
// instrumented, with the kernel.

void CheckCopy(void* destination, const void* source, std::size_t bytes, bool valid, CallSite site);
void PushCopy(const CopyQueue::Copy& copy);
void CommitCopies();
bool PopCopy(std::size_t pending, CopyQueue::Copy* copy);

// In pieces as wide as the copy: a sanitizer then reports one access.
template <std::size_t kBytes>
void CopyChunkBytes(void* destination, const void* source) {
  struct alignas(kBytes) Piece {
    unsigned char bytes[kBytes];
  };
  *static_cast<Piece*>(destination) = *static_cast<const Piece*>(source);
}

template <std::size_t kBytes>
void CopyAsync(void* destination, const void* source, bool valid, CallSite site) {
  CheckCopy(destination, source, kBytes, valid, site);
  CopyQueue::Copy copy{destination, kBytes, {}};
  if (valid) CopyChunkBytes<kBytes>(copy.chunk.data, source);
  CopyChunk not_yet;
  for (std::byte& byte : not_yet.data) byte = std::byte{0xff};
  CopyChunkBytes<kBytes>(destination, not_yet.data);
  PushCopy(copy);
}

inline void WaitCopies(std::size_t pending) {
  CopyQueue::Copy copy;
  while (PopCopy(pending, &copy)) {
    if (copy.bytes == 16) {
      CopyChunkBytes<16>(copy.destination, copy.chunk.data);
    } else if (copy.bytes == 8) {
      CopyChunkBytes<8>(copy.destination, copy.chunk.data);
    } else {
      CopyChunkBytes<4>(copy.destination, copy.chunk.data);
    }
  }
}

}  // namespace berth::emulation
