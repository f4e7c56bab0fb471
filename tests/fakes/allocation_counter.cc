#include "fakes/allocation_counter.h"

#include <malloc.h>
#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> allocations{0};
std::atomic<std::int64_t> bytes{0};

void Release(void* memory) {
  if (memory == nullptr) return;
  bytes.fetch_sub(static_cast<std::int64_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) std::abort();
  bytes.fetch_add(static_cast<std::int64_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
  return memory;
}
// libstdc++'s temporary buffers use the form that does not throw.
void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept { return operator new(size); }
void operator delete(void* memory, const std::nothrow_t& /*tag*/) noexcept { Release(memory); }
void operator delete(void* memory) noexcept { Release(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { Release(memory); }

namespace berth::test {

std::int64_t Allocations() { return allocations.load(std::memory_order_relaxed); }

std::int64_t AllocatedBytes() { return bytes.load(std::memory_order_relaxed); }

}  // namespace berth::test
