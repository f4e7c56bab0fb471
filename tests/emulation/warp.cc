#include "emulation/warp.h"

#include <algorithm>
#include <array>
#include <bit>

#include "emulation/block.h"
#include "emulation/fault.h"
#include "emulation/sanitizers.h"
#include "emulation/scheduler.h"
#include "emulation/settings.h"

namespace berth::emulation {
namespace {

// Lanes that meet: one group for each mask that a warp has used in this block.
struct Group {
  std::uint32_t lanes = 0;  // 0: unused
  std::uint32_t arrived = 0;
  const char* name = "";
  WarpOperation operation = nullptr;
  CallSite site{"", 0};  // of the first to arrive
  std::array<void*, kWarpThreads> arguments{};
  unsigned round = 0;  // parity chooses the tag, as in a barrier
};

constexpr std::size_t kGroups = 32;

struct Warp {
  std::array<Group, kGroups> groups;
  std::size_t used = 0;
};

std::array<Warp, kMaxWarps>& warps() {
  static std::array<Warp, kMaxWarps> instance;
  return instance;
}

Group& GroupOf(Warp& warp, std::uint32_t lanes, CallSite site) {
  for (std::size_t i = 0; i < warp.used; ++i) {
    if (warp.groups[i].lanes == lanes) return warp.groups[i];
  }
  if (warp.used == kGroups) Fail(site, "more than %zu different masks in one warp of one block", kGroups);
  Group& group = warp.groups[warp.used++];
  group = {};
  group.lanes = lanes;
  return group;
}

// Two groups that wait for the same lane will never be complete.
void CheckOthers(const Warp& warp, const Group& joined, const char* name, CallSite site) {
  for (std::size_t i = 0; i < warp.used; ++i) {
    const Group& other = warp.groups[i];
    if (&other == &joined || other.arrived == 0 || (other.lanes & joined.lanes) == 0) continue;
    Fail(site, "divergent %s with mask %08x: lanes %08x of the warp wait in %s with mask %08x at line %d", name,
         joined.lanes, other.arrived, other.name, other.lanes, other.site.line);
  }
}

template <typename Argument>
Argument& At(void* const* arguments, unsigned lane) {
  return *static_cast<Argument*>(arguments[lane]);
}

template <typename Function>
void ForEachLane(std::uint32_t lanes, Function function) {
  for (std::uint32_t rest = lanes; rest != 0; rest &= rest - 1) function(static_cast<unsigned>(std::countr_zero(rest)));
}

struct ShuffleArguments {
  std::uint64_t value;
  unsigned source;
  std::uint64_t result;
};

void DoShuffle(void* const* arguments, std::uint32_t lanes, CallSite site) {
  ForEachLane(lanes, [&](unsigned lane) {
    auto& own = At<ShuffleArguments>(arguments, lane);
    if ((lanes >> own.source & 1) == 0) {
      Fail(site, "lane %u shuffles from lane %u, which does not take part", lane, own.source);
    }
    own.result = At<ShuffleArguments>(arguments, own.source).value;
  });
}

struct BallotArguments {
  bool predicate;
  std::uint32_t result;
};

void DoBallot(void* const* arguments, std::uint32_t lanes, CallSite) {
  std::uint32_t votes = 0;
  ForEachLane(lanes, [&](unsigned lane) {
    votes |= static_cast<std::uint32_t>(At<BallotArguments>(arguments, lane).predicate) << lane;
  });
  ForEachLane(lanes, [&](unsigned lane) { At<BallotArguments>(arguments, lane).result = votes; });
}

template <typename T>
struct ReduceArguments {
  T value;
  Reduction reduction;
  T result;
};

template <typename T>
T Combine(Reduction reduction, T a, T b) {
  switch (reduction) {
    case Reduction::kAdd:
      return static_cast<T>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
    case Reduction::kMin:
      return std::min(a, b);
    case Reduction::kMax:
      return std::max(a, b);
    case Reduction::kAnd:
      return a & b;
    case Reduction::kOr:
      return a | b;
    case Reduction::kXor:
      return a ^ b;
  }
  __builtin_unreachable();
}

template <typename T>
void DoReduce(void* const* arguments, std::uint32_t lanes, CallSite site) {
  const auto first = static_cast<unsigned>(std::countr_zero(lanes));
  const Reduction reduction = At<ReduceArguments<T>>(arguments, first).reduction;
  T result = At<ReduceArguments<T>>(arguments, first).value;
  ForEachLane(lanes & (lanes - 1), [&](unsigned lane) {
    const auto& own = At<ReduceArguments<T>>(arguments, lane);
    if (own.reduction != reduction) Fail(site, "lanes of one warp reduce by different operations");
    result = Combine(reduction, result, own.value);
  });
  ForEachLane(lanes, [&](unsigned lane) { At<ReduceArguments<T>>(arguments, lane).result = result; });
}

template <typename T>
T ReduceOf(std::uint32_t mask, T value, Reduction reduction, CallSite site) {
  ReduceArguments<T> arguments{value, reduction, 0};
  Collective("__reduce_sync", mask, &DoReduce<T>, &arguments, site);
  return arguments.result;
}

void DoNothing(void* const*, std::uint32_t, CallSite) {}

// Joins the group of the mask; the tag is what SyncWarp orders memory by.
void* Join(const char* name, std::uint32_t mask, WarpOperation operation, void* arguments, bool orders, CallSite site) {
  Thread& self = scheduler().current();
  const std::uint32_t own = 1u << self.lane;
  if ((mask & own) == 0) Fail(site, "%s: the mask %08x leaves out the calling lane %u", name, mask, self.lane);
  // Lanes that the block does not have may be named.
  const std::uint32_t lanes = mask & scheduler().Existing(self.warp);
  if ((lanes & ~scheduler().Alive(self.warp)) != 0) {
    Fail(site, "%s: the mask %08x names lanes %08x, whose threads have ended", name, mask,
         lanes & ~scheduler().Alive(self.warp));
  }
  Warp& warp = warps()[self.warp];
  Group& group = GroupOf(warp, lanes, site);
  if (group.arrived == 0) {
    CheckOthers(warp, group, name, site);
    group.name = name;
    group.operation = operation;
    group.site = site;
  } else if (group.operation != operation || !Same(group.site, site)) {
    Fail(site, "divergent %s: other lanes of the warp wait in %s at line %d", name, group.name, group.site.line);
  }
  const auto number = static_cast<std::size_t>(&group - warp.groups.data());
  void* tag = SyncTag(kBarrierTags + (self.warp * kGroups + number) * 2 + group.round % 2);
  if (orders) Release(tag);
  group.arguments[self.lane] = arguments;
  group.arrived |= own;
  if (group.arrived == lanes) {
    ++counters().warp_collectives;
    operation(group.arguments.data(), lanes, site);
    group.arrived = 0;
    ++group.round;
    scheduler().Wake(self.warp, lanes);
  }
  scheduler().Wait(name, site);
  return tag;
}

}  // namespace

void ResetWarps() {
  for (Warp& warp : warps()) warp.used = 0;
}

unsigned LaneId() { return scheduler().current().lane; }

void Collective(const char* name, std::uint32_t mask, WarpOperation operation, void* arguments, CallSite site) {
  Join(name, mask, operation, arguments, false, site);
}

void WholeWarp(const char* name, WarpOperation operation, void* arguments, CallSite site) {
  if (scheduler().Existing(scheduler().current().warp) != ~0u)
    Fail(site, "%s in a warp of fewer than 32 threads", name);
  Join(name, ~0u, operation, arguments, false, site);
}

void SyncWarp(std::uint32_t mask, CallSite site) { Acquire(Join("__syncwarp", mask, &DoNothing, nullptr, true, site)); }

std::uint64_t Shuffle(std::uint32_t mask, std::uint64_t value, unsigned source, CallSite site) {
  ShuffleArguments arguments{value, source, 0};
  Collective("__shfl_sync", mask, &DoShuffle, &arguments, site);
  return arguments.result;
}

std::uint32_t Ballot(std::uint32_t mask, bool predicate, CallSite site) {
  BallotArguments arguments{predicate, 0};
  Collective("__ballot_sync", mask, &DoBallot, &arguments, site);
  return arguments.result;
}

std::uint32_t Reduce(std::uint32_t mask, std::uint32_t value, Reduction reduction, CallSite site) {
  return ReduceOf(mask, value, reduction, site);
}

std::int32_t Reduce(std::uint32_t mask, std::int32_t value, Reduction reduction, CallSite site) {
  return ReduceOf(mask, value, reduction, site);
}

}  // namespace berth::emulation
