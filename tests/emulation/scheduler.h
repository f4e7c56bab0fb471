// Which of a block's threads runs: every one is a fiber that goes on until it waits or ends.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "emulation/async_copy.h"
#include "emulation/call_site.h"
#include "emulation/fiber.h"
#include "emulation/settings.h"

namespace berth::emulation {

inline constexpr unsigned kWarpThreads = 32;
inline constexpr unsigned kMaxBlockThreads = 1024;
inline constexpr unsigned kMaxWarps = kMaxBlockThreads / kWarpThreads;

struct Thread {
  Thread(void (*entry)(), unsigned fiber_number) : fiber(entry, fiber_number) {}

  uint3 index{};        // threadIdx
  unsigned number = 0;  // in the block
  unsigned warp = 0;
  unsigned lane = 0;
  bool ended = true;
  // For the report of a deadlock.
  const char* waits_in = "";
  CallSite waits_at{"", 0};
  CopyQueue copies;
  Fiber
      fiber;  // last, so that it goes first: for ThreadSanitizer its end orders what it did before what frees the rest
};

class Scheduler {
 public:
  // Runs entry() in each of the block's threads until all have called End; false if one called Abandon. Blocks of
  // different cohorts have different fibers.
  bool RunBlock(dim3 block, void (*entry)(), std::size_t cohort, Random& random);

  // The calls below are for the running thread.
  Thread& current() { return *current_; }
  unsigned threads() const { return threads_; }
  unsigned alive() const { return alive_; }
  // Lanes of the warp that exist, and those whose threads have not ended.
  std::uint32_t Existing(unsigned warp) const { return existing_[warp]; }
  std::uint32_t Alive(unsigned warp) const { return alive_lanes_[warp]; }

  // Others run until someone wakes the caller. what, site: for the report when nobody can.
  void Wait(const char* what, CallSite site);
  void Wake(unsigned warp, std::uint32_t lanes);
  // Lets the next thread run that can.
  void Yield();
  // The caller's thread is over; returns when the fiber plays another one.
  void End();
  // Gives up the block; nothing of it runs again.
  [[noreturn]] void Abandon();

 private:
  void StartThreads(dim3 block, std::size_t cohort);
  Thread& Take();  // a thread that can run, no longer marked as such
  unsigned PickWarp();
  unsigned PickLane(std::uint32_t lanes);
  void Resume(Thread* next);  // null: the caller of RunBlock
  void Leave();               // the running thread cannot go on
  [[noreturn]] void ReportDeadlock();

  std::vector<std::unique_ptr<Thread>> pool_;
  std::array<Thread*, kMaxBlockThreads> block_{};  // by number
  std::array<std::uint32_t, kMaxWarps> ready_{};
  std::array<std::uint32_t, kMaxWarps> existing_{};
  std::array<std::uint32_t, kMaxWarps> alive_lanes_{};
  std::array<std::uint64_t, kMaxWarps> priority_{};  // of Order::kSkew
  unsigned threads_ = 0;
  unsigned warps_ = 0;
  unsigned ready_count_ = 0;
  unsigned alive_ = 0;
  bool abandoned_ = false;
  Thread* current_ = nullptr;
  Fiber* caller_ = nullptr;
  Random* random_ = nullptr;
};

Scheduler& scheduler();

}  // namespace berth::emulation
