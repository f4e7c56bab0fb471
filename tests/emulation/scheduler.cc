#include "emulation/scheduler.h"

#include <bit>
#include <cstdio>

#include "emulation/block.h"
#include "emulation/fault.h"

namespace berth::emulation {

Scheduler& scheduler() {
  static Scheduler instance;
  return instance;
}

bool Scheduler::RunBlock(dim3 block, void (*entry)(), std::size_t cohort, Random& random) {
  Fiber caller;
  caller_ = &caller;
  random_ = &random;
  abandoned_ = false;
  threads_ = block.x * block.y * block.z;
  warps_ = (threads_ + kWarpThreads - 1) / kWarpThreads;
  while (pool_.size() < (cohort + 1) * threads_) {
    pool_.push_back(std::make_unique<Thread>(entry, static_cast<unsigned>(pool_.size())));
  }
  StartThreads(block, cohort);
  Resume(&Take());
  // Here again: Resume(nullptr) was called.
  caller_ = nullptr;
  if (abandoned_) pool_.clear();  // their stacks hold the middle of a kernel
  return !abandoned_;
}

void Scheduler::StartThreads(dim3 block, std::size_t cohort) {
  for (unsigned number = 0; number < threads_; ++number) {
    Thread& thread = *pool_[cohort * threads_ + number];
    thread.index = {number % block.x, number / block.x % block.y, number / block.x / block.y};
    thread.number = number;
    thread.warp = number / kWarpThreads;
    thread.lane = number % kWarpThreads;
    thread.ended = false;
    thread.copies.Clear();
    block_[number] = &thread;
  }
  alive_ = threads_;
  ready_count_ = threads_;
  for (unsigned warp = 0; warp < warps_; ++warp) {
    const unsigned lanes = threads_ - warp * kWarpThreads;
    existing_[warp] = lanes >= kWarpThreads ? ~0u : (1u << lanes) - 1;
    alive_lanes_[warp] = existing_[warp];
    ready_[warp] = existing_[warp];
    priority_[warp] = random_->Next();
  }
}

void Scheduler::Wait(const char* what, CallSite site) {
  current_->waits_in = what;
  current_->waits_at = site;
  Leave();
}

void Scheduler::Wake(unsigned warp, std::uint32_t lanes) {
  ready_[warp] |= lanes;
  ready_count_ += static_cast<unsigned>(std::popcount(lanes));
}

void Scheduler::Yield() {
  // In turn rather than by the order, so that of several who wait in loops each moves on.
  for (unsigned step = 1; step < threads_; ++step) {
    Thread& other = *block_[(current_->number + step) % threads_];
    if ((ready_[other.warp] >> other.lane & 1) == 0) continue;
    Wake(current_->warp, 1u << current_->lane);
    ready_[other.warp] &= ~(1u << other.lane);
    --ready_count_;
    Resume(&other);
    return;
  }
}

void Scheduler::End() {
  current_->ended = true;
  --alive_;
  alive_lanes_[current_->warp] &= ~(1u << current_->lane);
  if (alive_ == 0) {
    Resume(nullptr);
  } else {
    Leave();
  }
}

void Scheduler::Abandon() {
  abandoned_ = true;
  Resume(nullptr);
  __builtin_unreachable();
}

void Scheduler::Leave() {
  if (ready_count_ == 0) ReportDeadlock();
  Thread& next = Take();
  if (&next != current_) Resume(&next);
}

void Scheduler::Resume(Thread* next) {
  Fiber& from = current_ != nullptr ? current_->fiber : *caller_;
  Fiber& to = next != nullptr ? next->fiber : *caller_;
  current_ = next;
  if (next != nullptr) threadIdx = next->index;
  ++counters().switches;
  from.SwitchTo(to);
}

Thread& Scheduler::Take() {
  const unsigned warp = PickWarp();
  const unsigned lane = PickLane(ready_[warp]);
  ready_[warp] &= ~(1u << lane);
  --ready_count_;
  return *block_[warp * kWarpThreads + lane];
}

unsigned Scheduler::PickWarp() {
  const Order order = settings().order;
  if (order == Order::kSkew) {
    constexpr unsigned kSwitchesPerChange = 97;
    if (random_->Below(kSwitchesPerChange) == 0) priority_[random_->Below(warps_)] = random_->Next();
    unsigned best = kMaxWarps;
    for (unsigned warp = 0; warp < warps_; ++warp) {
      if (ready_[warp] != 0 && (best == kMaxWarps || priority_[warp] > priority_[best])) best = warp;
    }
    return best;
  }
  const unsigned step = order == Order::kReverse ? warps_ - 1 : 1;  // modulo warps_
  unsigned warp = order == Order::kReverse ? warps_ - 1 : 0;
  if (order == Order::kRandom) {
    warp = static_cast<unsigned>(random_->Below(warps_));
  } else if (current_ != nullptr) {
    warp = current_->warp;
  }
  while (ready_[warp] == 0) warp = (warp + step) % warps_;
  return warp;
}

unsigned Scheduler::PickLane(std::uint32_t lanes) {
  switch (settings().order) {
    case Order::kForward:
      break;
    case Order::kReverse:
      return kWarpThreads - 1 - static_cast<unsigned>(std::countl_zero(lanes));
    case Order::kRandom:
    case Order::kSkew: {
      const auto first = static_cast<unsigned>(random_->Below(kWarpThreads));
      const std::uint32_t rotated = std::rotr(lanes, static_cast<int>(first));
      return (first + static_cast<unsigned>(std::countr_zero(rotated))) % kWarpThreads;
    }
  }
  return static_cast<unsigned>(std::countr_zero(lanes));
}

void Scheduler::ReportDeadlock() {
  // No std::string: Fail does not return, so nothing here is destroyed.
  std::array<char, 320> waiting{};
  std::size_t length = 0;
  const Thread* last = nullptr;
  for (unsigned number = 0; number < threads_ && length + 1 < waiting.size(); ++number) {
    const Thread& thread = *block_[number];
    if (thread.ended) continue;
    // Neighbours at the same place are told once.
    if (last == nullptr || last->warp != thread.warp || !Same(last->waits_at, thread.waits_at)) {
      const int written =
          std::snprintf(waiting.data() + length, waiting.size() - length, "; thread %u waits in %s at line %d", number,
                        thread.waits_in, thread.waits_at.line);
      length += static_cast<std::size_t>(written);
    }
    last = &thread;
  }
  const CallSite site = last != nullptr ? last->waits_at : CallSite::Here();
  Fail(site, "deadlock: no thread of the block can go on%s", waiting.data());
}

}  // namespace berth::emulation
