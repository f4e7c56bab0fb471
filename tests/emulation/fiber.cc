#include "emulation/fiber.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#include "emulation/sanitizers.h"

#ifdef BERTH_EMULATION_TSAN
// A race is an error at once, and a process that is done does not linger.
extern "C" const char* __tsan_default_options() { return "halt_on_error=1 atexit_sleep_ms=0"; }
#endif

namespace berth::emulation {
namespace {

using boost::context::detail::transfer_t;

constexpr std::size_t kPageBytes = 4096;
// Sanitized frames are several times as large as others; pages that are never touched cost nothing.
constexpr std::size_t kStackBytes = 256 * 1024;
constexpr std::size_t kColours = 16;
constexpr std::size_t kColourBytes = 1088;  // seventeen cache lines: another set for each colour

#ifdef BERTH_EMULATION_TSAN
constexpr unsigned kTsanOrder = 0;
constexpr unsigned kTsanNoOrder = 1;
#endif

}  // namespace

// What travels with a switch, on the stack that is left.
struct Fiber::Handover {
  Fiber* from;
  Fiber* to;
};

Fiber::Fiber() {
#ifdef BERTH_EMULATION_TSAN
  tsan_fiber_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(void (*entry)(), unsigned number) : entry_(entry) {
  void* memory = mmap(nullptr, kPageBytes + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kPageBytes, PROT_NONE) != 0) {
    std::perror("emulation: no memory for the stack of a thread");
    std::abort();
  }
  stack_ = static_cast<std::byte*>(memory);
  stack_bottom_ = stack_ + kPageBytes;
  stack_bytes_ = kStackBytes;
  const std::size_t usable_bytes = kStackBytes - number % kColours * kColourBytes;
  context_ = boost::context::detail::make_fcontext(stack_ + kPageBytes + usable_bytes, usable_bytes, &Fiber::Start);
#ifdef BERTH_EMULATION_TSAN
  tsan_fiber_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  if (stack_ == nullptr) return;
#ifdef BERTH_EMULATION_TSAN
  // As joining a thread does: what the fiber did, even if it was abandoned, happened before what follows.
  void* self = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_fiber_, kTsanNoOrder);
  __tsan_switch_to_fiber(self, kTsanOrder);
  __tsan_destroy_fiber(tsan_fiber_);
#endif
  Unpoison(stack_ + kPageBytes, kStackBytes);
  munmap(stack_, kPageBytes + kStackBytes);
}

void Fiber::SwitchTo(Fiber& to) {
  Handover handover{this, &to};
#ifdef BERTH_EMULATION_ASAN
  __sanitizer_start_switch_fiber(&fake_stack_, to.stack_bottom_, to.stack_bytes_);
#endif
#ifdef BERTH_EMULATION_TSAN
  // A switch is the emulation's, not the kernel's: it orders no memory accesses.
  __tsan_switch_to_fiber(to.tsan_fiber_, kTsanNoOrder);
#endif
  Arrive(boost::context::detail::jump_fcontext(to.context_, &handover));
}

void Fiber::Start(transfer_t transfer) {
  Fiber* self = static_cast<Handover*>(transfer.data)->to;
  Arrive(transfer);
  self->entry_();
}

void Fiber::Arrive(transfer_t transfer) {
  const Handover handover = *static_cast<Handover*>(transfer.data);
  handover.from->context_ = transfer.fctx;
#ifdef BERTH_EMULATION_ASAN
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(handover.to->fake_stack_, &bottom, &bytes);
  // The caller's stack is known only once it has been left.
  handover.from->stack_bottom_ = bottom;
  handover.from->stack_bytes_ = bytes;
#endif
}

}  // namespace berth::emulation
