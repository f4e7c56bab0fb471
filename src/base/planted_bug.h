// Faults that the simulation must find. A normal build has none of them: Planted() is a constant false and costs
// nothing. With BERTH_PLANTED_BUGS defined, one can be switched on, to prove that the simulation bites.
#pragma once

#include <cstdint>

namespace berth {

enum class PlantedBug : std::uint8_t {
  kNone,
  kLeakOnCancel,           // an ended request keeps its blocks
  kMissedReference,        // a hit is used without being held
  kDoubleFree,             // a block returns twice
  kDemandOffByOne,         // one block too few is reserved where the output ends on a block's edge
  kFirstOwnerPays,         // a shared block is charged to its first owner's class alone
  kParkedOvertaken,        // a newcomer goes before a preempted request of its class and tenant
  kSharedBlockWritten,     // a full hit covers the last prompt token too
  kLostWakeUp,             // a class is looked at only when nothing of it runs
  kSlotGuaranteeIgnored,   // nobody is preempted where only slots are short
  kUnlentBorrowed,         // what a class keeps back is lent all the same
  kBoundReadBeforeTicket,  // a place in a queue is counted after the bound was tested
  kDebtForgotten,          // a class that is beyond its ceiling goes on borrowing
  kProtectedPreempted,     // protection protects from nothing
  kReusedBlockStillFound,  // a block stays in the prefix index when its memory is reused
  kChoiceKeepsItsSlot,     // a choice that ended still counts as a sequence
  kFailedStepIndexed,      // blocks of a step that failed are offered to others
  kSwapInSkipped,          // a block counts as copied back from the host's memory and is not
  kHostBlockFreedEarly,    // blocks of the host's memory stay free while a request has them
  kFailedSwapOutKept,      // what a failed step was to copy out counts as copied
  kGhostTokenTaken,        // what a row draws counts though its sequence has ended meanwhile
  kCarriedFromAnother,     // a carried token is taken from the first row that draws
};

#ifdef BERTH_PLANTED_BUGS
inline PlantedBug planted_bug = PlantedBug::kNone;
inline bool Planted(PlantedBug bug) { return planted_bug == bug; }
#else
constexpr bool Planted(PlantedBug /*bug*/) { return false; }
#endif

}  // namespace berth
