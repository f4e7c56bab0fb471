#include "allocation_probe.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

thread_local bool probing = false;
thread_local std::size_t largest = 0;
thread_local std::size_t total = 0;

// malloc underneath, so the sanitizers still see every block and its bounds.
void* Allocate(std::size_t bytes, std::size_t alignment) noexcept {
  if (probing) {
    largest = std::max(largest, bytes);
    total += bytes;
  }
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  if (alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) return std::malloc(size);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* AllocateOrThrow(std::size_t bytes, std::size_t alignment) {
  void* block = Allocate(bytes, alignment);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

}  // namespace

// Every form, so that none is left to the sanitizer's own, which would pair with these wrongly.
void* operator new(std::size_t n) { return AllocateOrThrow(n, 1); }
void* operator new[](std::size_t n) { return AllocateOrThrow(n, 1); }
void* operator new(std::size_t n, std::align_val_t a) { return AllocateOrThrow(n, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t n, std::align_val_t a) { return AllocateOrThrow(n, static_cast<std::size_t>(a)); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return Allocate(n, 1); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return Allocate(n, 1); }
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return Allocate(n, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return Allocate(n, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { std::free(p); }

namespace berth::test {

AllocationProbe::AllocationProbe() {
  largest = 0;
  total = 0;
  probing = true;
}
AllocationProbe::~AllocationProbe() { probing = false; }

std::size_t AllocationProbe::largest_bytes() const { return largest; }
std::size_t AllocationProbe::total_bytes() const { return total; }

}  // namespace berth::test
