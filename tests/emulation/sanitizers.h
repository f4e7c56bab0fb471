// What the sanitizers must be told by code that switches stacks and reuses memory. Empty where none runs.
//
// Under ThreadSanitizer the emulation's own sources are compiled without instrumentation (its scheduler shares state
// between fibers by design), so the build says it is there: BERTH_EMULATION_TSAN.
#pragma once

#include <cstddef>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BERTH_EMULATION_ASAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define BERTH_EMULATION_ASAN 1
#endif

#ifdef BERTH_EMULATION_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// compiler-rt's tsan_interface.h; not every compiler's package has the header.
#ifdef BERTH_EMULATION_TSAN
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

namespace berth::emulation {

#ifdef BERTH_EMULATION_TSAN
inline constexpr bool kThreadSanitizer = true;
// What happened before a Release of this address happened before what follows an Acquire of it.
inline void Release(void* address) { __tsan_release(address); }
inline void Acquire(void* address) { __tsan_acquire(address); }
#else
inline constexpr bool kThreadSanitizer = false;
inline void Release(void*) {}
inline void Acquire(void*) {}
#endif

#ifdef BERTH_EMULATION_ASAN
inline constexpr bool kAddressSanitizer = true;
inline void Poison(void* address, std::size_t bytes) { __asan_poison_memory_region(address, bytes); }
inline void Unpoison(void* address, std::size_t bytes) { __asan_unpoison_memory_region(address, bytes); }
#else
inline constexpr bool kAddressSanitizer = false;
inline void Poison(void*, std::size_t) {}
inline void Unpoison(void*, std::size_t) {}
#endif

}  // namespace berth::emulation
