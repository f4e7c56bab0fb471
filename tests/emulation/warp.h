// What the lanes of a warp do together.
#pragma once

#include <cstdint>

#include "emulation/call_site.h"

namespace berth::emulation {

// Runs once all lanes that `lanes` names have come: arguments[lane] is what each of them brought, and where it takes
// its results from.
using WarpOperation = void (*)(void* const* arguments, std::uint32_t lanes, CallSite site);

// The caller's part of an operation: returns when it has been done. Lanes that are not where the others wait are a
// fault (a different operation or place), as are lanes that have ended. Orders no memory accesses.
void Collective(const char* name, std::uint32_t mask, WarpOperation operation, void* arguments, CallSite site);
// The same of all 32 lanes: what the matrix instructions demand.
void WholeWarp(const char* name, WarpOperation operation, void* arguments, CallSite site);

unsigned LaneId();

// __syncwarp: orders memory accesses of the lanes.
void SyncWarp(std::uint32_t mask, CallSite site);
// The value that lane `source` brought.
std::uint64_t Shuffle(std::uint32_t mask, std::uint64_t value, unsigned source, CallSite site);
// A bit for each lane whose predicate holds.
std::uint32_t Ballot(std::uint32_t mask, bool predicate, CallSite site);

enum class Reduction { kAdd, kMin, kMax, kAnd, kOr, kXor };
std::uint32_t Reduce(std::uint32_t mask, std::uint32_t value, Reduction reduction, CallSite site);
std::int32_t Reduce(std::uint32_t mask, std::int32_t value, Reduction reduction, CallSite site);

// Before each block.
void ResetWarps();

}  // namespace berth::emulation
