#include "emulation/block.h"

#include <array>
#include <cstdint>
#include <numeric>

#include "emulation/fault.h"
#include "emulation/sanitizers.h"
#include "emulation/scheduler.h"
#include "emulation/settings.h"
#include "emulation/shared_memory.h"
#include "emulation/warp.h"

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace berth::emulation {
namespace {

constexpr unsigned kBarriers = 16;

struct Barrier {
  unsigned arrived = 0;
  unsigned expected = 0;
  CallSite site{"", 0};  // of the first to arrive
  std::array<std::uint32_t, kMaxWarps> waiting{};
  // Which of its two tags it uses: a thread that runs ahead to the next round must not seem ordered before those that
  // have not woken from this one.
  unsigned round = 0;
};

struct Grid {
  bool running = false;
  LaunchShape shape;
  const std::function<void()>* body = nullptr;
  SharedMemory shared;
  std::array<Barrier, kBarriers> barriers;
  // What happened before the launch happened before each thread begins; what threads do, before the launch is over.
  char begin = 0;
  char end = 0;
  char fence = 0;
  std::uint64_t done = 0;  // blocks
};

Grid& grid() {
  static Grid instance;
  return instance;
}

constexpr unsigned kWholeBlock = 0;  // the barrier of __syncthreads

void ThreadMain() {
  for (;;) {
    Acquire(&grid().begin);
    (*grid().body)();
    Release(&grid().end);
    const Barrier& barrier = grid().barriers[kWholeBlock];
    if (barrier.arrived > 0) {
      Fail(barrier.site, "thread %u has ended while others wait in this __syncthreads", scheduler().current().number);
    }
    scheduler().End();
  }
}

void Arrive(unsigned number, unsigned threads, bool wait, const char* what, CallSite site) {
  Thread& self = scheduler().current();
  Barrier& barrier = grid().barriers[number];
  if (barrier.arrived == 0) {
    barrier.expected = threads;
    barrier.site = site;
  } else if (barrier.expected != threads) {
    Fail(site, "barrier %u is for %u threads here, for %u at line %d", number, threads, barrier.expected,
         barrier.site.line);
  } else if (number == kWholeBlock && !Same(barrier.site, site)) {
    Fail(site, "divergent __syncthreads: other threads of the block wait at line %d", barrier.site.line);
  }
  void* tag = SyncTag(number * 2 + barrier.round % 2);
  Release(tag);
  if (wait) barrier.waiting[self.warp] |= 1u << self.lane;
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    ++barrier.round;
    for (unsigned warp = 0; warp < kMaxWarps; ++warp) {
      if (barrier.waiting[warp] == 0) continue;
      scheduler().Wake(warp, barrier.waiting[warp]);
      barrier.waiting[warp] = 0;
    }
  }
  if (!wait) return;
  scheduler().Wait(what, site);
  Acquire(tag);
}

void CheckNamed(unsigned barrier, unsigned threads, CallSite site) {
  if (barrier == kWholeBlock || barrier >= kBarriers) Fail(site, "there is no named barrier %u: use 1 to 15", barrier);
  if (threads == 0 || threads % kWarpThreads != 0) Fail(site, "%u threads at a barrier are not whole warps", threads);
}

// A visit of all blocks in the order that is set.
class BlockSequence {
 public:
  BlockSequence(std::uint64_t blocks, Random& random) : blocks_(blocks) {
    const Order order = settings().order;
    if (order == Order::kReverse) {
      next_ = blocks - 1;
      step_ = blocks - 1;  // one back, modulo the number of blocks
    } else if (order != Order::kForward) {
      next_ = random.Below(blocks);
      do {
        step_ = 1 + random.Below(blocks);
      } while (std::gcd(step_, blocks) != 1);
    }
  }

  std::uint64_t Next() {
    const std::uint64_t block = next_;
    next_ = (next_ + step_) % blocks_;
    return block;
  }

 private:
  std::uint64_t blocks_;
  std::uint64_t next_ = 0;
  std::uint64_t step_ = 1;
};

}  // namespace

bool InKernel() { return grid().running; }

bool RunGrid(const LaunchShape& shape, const std::function<void()>& body) {
  Grid& self = grid();
  if (self.running) Fail(CallSite::Here(), "a kernel cannot launch another");
  self.running = true;
  self.shape = shape;
  self.body = &body;
  blockDim = shape.block;
  gridDim = shape.grid;
  const std::uint64_t blocks = std::uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z;
  const std::uint64_t threads = std::uint64_t{shape.block.x} * shape.block.y * shape.block.z;
  ++counters().kernels;
  counters().threads += blocks * threads;
  Random random(settings().seed);
  BlockSequence sequence(blocks, random);
  bool good = true;
  for (self.done = 0; self.done < blocks && good; ++self.done) {
    const std::uint64_t block = sequence.Next();
    blockIdx = {static_cast<unsigned>(block % shape.grid.x), static_cast<unsigned>(block / shape.grid.x % shape.grid.y),
                static_cast<unsigned>(block / shape.grid.x / shape.grid.y)};
    self.shared.Begin(shape.dynamic_shared_bytes);
    self.barriers = {};
    ResetWarps();
    Release(&self.begin);
    // To ThreadSanitizer what one fiber does is in order, and what it learned at a barrier it knows for good: of blocks
    // that follow each other none has a fiber of the other.
    constexpr std::uint64_t kCohorts = kThreadSanitizer ? 2 : 1;
    good = scheduler().RunBlock(shape.block, &ThreadMain, self.done % kCohorts, random);
  }
  Acquire(&self.end);
  self.running = false;
  return good;
}

void SyncThreads(CallSite site) {
  const Scheduler& threads = scheduler();
  if (threads.alive() != threads.threads()) {
    Fail(site, "__syncthreads after %u threads of the block have ended", threads.threads() - threads.alive());
  }
  Arrive(kWholeBlock, threads.threads(), true, "__syncthreads", site);
}

void BarrierSync(unsigned barrier, unsigned threads, CallSite site) {
  CheckNamed(barrier, threads, site);
  Arrive(barrier, threads, true, "BarrierSync", site);
}

void BarrierArrive(unsigned barrier, unsigned threads, CallSite site) {
  CheckNamed(barrier, threads, site);
  Arrive(barrier, threads, false, "BarrierArrive", site);
}

void* DynamicShared(std::size_t bytes, CallSite site) {
  const SharedMemory& shared = grid().shared;
  if (bytes > shared.dynamic_bytes()) {
    Fail(site, "the launch gave %zu bytes of dynamic shared memory, the kernel uses %zu", shared.dynamic_bytes(),
         bytes);
  }
  return shared.dynamic();
}

void* StaticShared(const void* key, std::size_t bytes, std::size_t alignment, CallSite site) {
  SharedMemory& shared = grid().shared;
  void* address = shared.Static(key, bytes, alignment);
  const std::size_t limit = grid().shape.shared_opt_in ? kOptInSharedBytes : kDefaultSharedBytes;
  if (address == nullptr || shared.static_bytes() + shared.dynamic_bytes() > limit) {
    Fail(site, "%zu bytes of static and %zu of dynamic shared memory: more than a block may have",
         shared.static_bytes(), shared.dynamic_bytes());
  }
  return address;
}

bool InShared(const void* address, std::size_t bytes) { return grid().shared.Holds(address, bytes); }

void Yield() { scheduler().Yield(); }

void Fence() {
  Acquire(&grid().fence);
  Release(&grid().fence);
}

void* SyncTag(std::size_t number) {
  // Addresses that nobody uses for anything else. Those of a block come again after so many others: what
  // ThreadSanitizer knows of an address stays, and would order blocks that nothing orders.
  constexpr std::size_t kBlocksApart = 512;
  static std::array<char, kBlocksApart * kSyncTags> tags;
  return &tags[grid().done % kBlocksApart * kSyncTags + number];
}

}  // namespace berth::emulation
