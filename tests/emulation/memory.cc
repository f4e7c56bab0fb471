#include "emulation/memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "emulation/fault.h"
#include "emulation/runtime.h"
#include "emulation/sanitizers.h"
#include "emulation/settings.h"

namespace berth::emulation {
namespace {

constexpr std::size_t kAlignment = 256;  // as cudaMalloc promises
constexpr std::size_t kGuardBytes = 64;
constexpr int kFresh = 0xff;  // a NaN in each of the float types
constexpr std::byte kGuard{0xa5};

void Discard(std::byte* address, std::size_t bytes) {
  Unpoison(address + bytes, kGuardBytes);
  std::free(address);
}

}  // namespace

void* Memory::Allocate(MemoryKind kind, std::size_t bytes) {
  if (kind == MemoryKind::kDevice && bytes > settings().device_memory_bytes - device_bytes_) return nullptr;
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, bytes + kGuardBytes) != 0) return nullptr;
  auto* address = static_cast<std::byte*>(memory);
  std::memset(address, kFresh, bytes);
  std::fill_n(address + bytes, kGuardBytes, kGuard);
  Poison(address + bytes, kGuardBytes);
  allocations_[address] = {kind, bytes};
  (kind == MemoryKind::kDevice ? device_bytes_ : pinned_bytes_) += bytes;
  return memory;
}

bool Memory::Free(MemoryKind kind, void* address) {
  const auto found = allocations_.find(static_cast<std::byte*>(address));
  if (found == allocations_.end() || found->second.kind != kind) return false;
  CheckGuards();
  (kind == MemoryKind::kDevice ? device_bytes_ : pinned_bytes_) -= found->second.bytes;
  Discard(found->first, found->second.bytes);
  allocations_.erase(found);
  return true;
}

void Memory::FreeAll() {
  for (const auto& [address, allocation] : allocations_) Discard(address, allocation.bytes);
  allocations_.clear();
  device_bytes_ = 0;
  pinned_bytes_ = 0;
}

std::optional<MemoryKind> Memory::KindOf(const void* address, std::size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(address);
  auto after = allocations_.upper_bound(const_cast<std::byte*>(begin));
  if (after == allocations_.begin()) return MemoryKind::kPageable;
  const auto& [first, allocation] = *--after;
  if (begin >= first + allocation.bytes) return MemoryKind::kPageable;
  if (begin + bytes > first + allocation.bytes) return std::nullopt;
  return allocation.kind;
}

void Memory::CheckGuards() const {
  if (kAddressSanitizer) return;
  for (const auto& [address, allocation] : allocations_) {
    const std::byte* guard = address + allocation.bytes;
    if (std::all_of(guard, guard + kGuardBytes, [](std::byte byte) { return byte == kGuard; })) continue;
    RecordFault("bytes were written behind an allocation of " + std::to_string(allocation.bytes) + " bytes");
    return;
  }
}

namespace {

// A copy's direction by the kinds of memory at its ends; pinned memory is the host's.
bool Matches(cudaMemcpyKind direction, MemoryKind destination, MemoryKind source) {
  const bool to_device = destination == MemoryKind::kDevice;
  const bool from_device = source == MemoryKind::kDevice;
  switch (direction) {
    case cudaMemcpyHostToDevice:
      return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
      return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
      return to_device && from_device;
    case cudaMemcpyHostToHost:
      return !to_device && !from_device;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

// "API synchronization behavior" of the runtime's reference: a copy from pageable memory has read it when the call
// returns, a copy to pageable memory is over, a copy of pinned or device memory happens in the stream's time.
// host_waits: cudaMemcpy is over when it returns; from pageable memory or within the device it need not be, and a
// stream that does not wait for the legacy one may come before.
cudaError_t CopyInStream(void* destination, const void* source, std::size_t bytes, cudaMemcpyKind direction,
                         cudaStream_t stream, bool* host_waits) {
  const auto to = context().memory.KindOf(destination, bytes);
  const auto from = context().memory.KindOf(source, bytes);
  if (!to || !from) return cudaErrorInvalidValue;
  if (!Matches(direction, *to, *from)) return cudaErrorInvalidMemcpyDirection;
  *host_waits = *to != MemoryKind::kDevice || *from == MemoryKind::kPinned;
  const bool capturing = IsCapturing(stream);
  if (*from == MemoryKind::kPageable && !capturing) {
    const auto* begin = static_cast<const std::byte*>(source);
    std::vector<std::byte> staged(begin, begin + bytes);
    return Enqueue(stream,
                   {nullptr, [=, data = std::move(staged)] { std::memcpy(destination, data.data(), bytes); }, {}});
  }
  const cudaError_t error = Enqueue(stream, {nullptr, [=] { std::memcpy(destination, source, bytes); }, {}});
  if (error == cudaSuccess && *to == MemoryKind::kPageable && !capturing) FinishStream(stream);
  return error;
}

cudaError_t AllocateFor(void** address, MemoryKind kind, std::size_t bytes) {
  return Guarded([&]() -> cudaError_t {
    if (const cudaError_t error = UnsafeDuringCapture(); error != cudaSuccess) return error;
    *address = nullptr;
    if (bytes == 0) return cudaSuccess;
    *address = context().memory.Allocate(kind, bytes);
    return *address == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}

// Waits for all work first: whatever used the memory is over.
cudaError_t FreeAfterWork(void* address, MemoryKind kind) {
  return Guarded([&]() -> cudaError_t {
    if (const cudaError_t error = UnsafeDuringCapture(); error != cudaSuccess) return error;
    if (address == nullptr) return cudaSuccess;
    FinishAll();
    return context().memory.Free(kind, address) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

}  // namespace
}  // namespace berth::emulation

using berth::emulation::context;
using berth::emulation::Guarded;
using berth::emulation::MemoryKind;

extern "C" {

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  return berth::emulation::AllocateFor(address, MemoryKind::kDevice, bytes);
}

cudaError_t cudaFree(void* address) { return berth::emulation::FreeAfterWork(address, MemoryKind::kDevice); }

cudaError_t cudaHostAlloc(void** address, std::size_t bytes, unsigned) {
  return berth::emulation::AllocateFor(address, MemoryKind::kPinned, bytes);
}

cudaError_t cudaMallocHost(void** address, std::size_t bytes) { return cudaHostAlloc(address, bytes, 0); }

cudaError_t cudaFreeHost(void* address) { return berth::emulation::FreeAfterWork(address, MemoryKind::kPinned); }

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  return Guarded([&] {
    *total_bytes = berth::emulation::settings().device_memory_bytes;
    *free_bytes = *total_bytes - context().memory.device_bytes();
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* destination, const void* source, std::size_t bytes, cudaMemcpyKind direction,
                            cudaStream_t stream) {
  return Guarded([&] {
    bool host_waits = false;
    return berth::emulation::CopyInStream(destination, source, bytes, direction, stream, &host_waits);
  });
}

cudaError_t cudaMemcpy(void* destination, const void* source, std::size_t bytes, cudaMemcpyKind direction) {
  return Guarded([&] {
    bool host_waits = false;
    const cudaError_t error =
        berth::emulation::CopyInStream(destination, source, bytes, direction, cudaStreamLegacy, &host_waits);
    if (error == cudaSuccess && host_waits) berth::emulation::FinishStream(cudaStreamLegacy);
    return error;
  });
}

cudaError_t cudaMemsetAsync(void* address, int value, std::size_t bytes, cudaStream_t stream) {
  return Guarded([&]() -> cudaError_t {
    if (context().memory.KindOf(address, bytes) != MemoryKind::kDevice) return cudaErrorInvalidValue;
    return berth::emulation::Enqueue(stream, {nullptr, [=] { std::memset(address, value, bytes); }, {}});
  });
}

cudaError_t cudaMemset(void* address, int value, std::size_t bytes) {
  return cudaMemsetAsync(address, value, bytes, cudaStreamLegacy);
}

}  // extern "C"
