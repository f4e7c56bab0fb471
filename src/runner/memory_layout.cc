#include "runner/memory_layout.h"

namespace berth {

std::size_t MemoryLayout::Advance(std::size_t count, std::size_t times, std::size_t element_bytes) {
  const std::size_t at = bytes_;
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, times, &bytes) || __builtin_mul_overflow(bytes, element_bytes, &bytes) ||
      __builtin_add_overflow(bytes, alignment_ - 1, &bytes) ||
      __builtin_add_overflow(bytes / alignment_ * alignment_, bytes_, &bytes_)) {
    bytes_ = kTooMuch;
  }
  return at;
}

}  // namespace berth
