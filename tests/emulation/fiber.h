// One thread of a block: a stack of its own, left and resumed in a few nanoseconds (Boost.Context's fcontext). The raw
// context rather than boost::context::fiber, because the sanitizers' annotations must stand directly around the jump
// and Debian's Boost has none.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>

namespace berth::emulation {

class Fiber {
 public:
  // The stack of the caller, as a place to come back to.
  Fiber();
  // A new stack. entry() starts at the first switch to it and never returns. number varies where on its pages the stack
  // begins: at equal offsets all of them would fight for the same cache lines.
  Fiber(void (*entry)(), unsigned number);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  // What its stack still holds is dropped, not destroyed. REQUIRES: not the running one, except for the caller's stack.
  ~Fiber();

  // Leaves this fiber, which must be the running one, for `to`; returns when someone switches back to it.
  void SwitchTo(Fiber& to);

 private:
  struct Handover;

  static void Start(boost::context::detail::transfer_t transfer);
  static void Arrive(boost::context::detail::transfer_t transfer);

  boost::context::detail::fcontext_t context_ = nullptr;
  void (*entry_)() = nullptr;
  std::byte* stack_ = nullptr;  // null: the caller's
  // The sanitizers' books of this stack.
  const void* stack_bottom_ = nullptr;
  std::size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;
  void* tsan_fiber_ = nullptr;
};

}  // namespace berth::emulation
