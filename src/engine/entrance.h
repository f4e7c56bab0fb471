// Who may stand in a queue, and which request ids are taken: what a newcomer asks before anything else is done for it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "admission/entry_desk.h"
#include "berth/admission.h"
#include "berth/clock.h"
#include "berth/policy.h"
#include "engine/live_list.h"
#include "engine/ticket.h"

namespace berth {

// As Engine::TakeTicket.
struct TicketRequest {
  std::string request_id;
  ClassId service_class = 0;  // an index outside the policy = a class nobody knows
  TenantId tenant = 0;
  std::int32_t n = 1;
  std::int64_t least_prompt_tokens = 1;  // bytes of text ÷ the longest token
  // A live request of this id is an earlier attempt of the same call: it is cancelled, and its place in a queue is free
  // for this one.
  bool replaces_live = false;
};

// A ticket, and the one whose request id it took over.
struct EntranceTicket {
  TicketNumber number = 0;
  std::optional<TicketNumber> replaced = {};
};

// Thread-safe; one lock, held for microseconds and never while anything is planned or computed.
//
// A ticket is *live*, and its request id taken, from Enter until it is given back or its request has ended; it has a
// place in its class's queue while its request does not run. A request is *unfinished* from NoteSubmitted until
// NoteOver: its last event may still be on its way.
class Entrance {
 public:
  explicit Entrance(const Policy& policy);

  // --- Callers' threads.
  // What is replaced is still to be cancelled.
  std::variant<EntranceTicket, Refusal> Enter(const TicketRequest& request);
  // What Enter would refuse it with now.
  std::optional<Refusal> Judge(const TicketRequest& request) const;
  // The ticket was not used.
  void GiveBack(TicketNumber ticket);
  // True the first time, for a live ticket: however often a request is cancelled, the engine's thread hears of it once,
  // and the first reason holds.
  bool MarkCancelled(TicketNumber ticket, RefusalReason reason);
  // Why the ticket was cancelled; absent where it was not.
  std::optional<RefusalReason> WhyCancelled(TicketNumber ticket) const;
  // The live ticket of that request id.
  std::optional<TicketNumber> Find(TenantId tenant, const std::string& request_id) const;
  // Goes through the live tickets in the order in which they were given, from `*from` on, at most `look_at` of them,
  // and leaves in `*from` where to go on: what matches is appended while `found` has fewer than `most`, and counted
  // after that. False at the end. So that a long queue never keeps the lock for long.
  bool Walk(const LiveFilter& filter, std::size_t look_at, std::size_t most, TicketNumber* from,
            std::vector<LiveTicket>* found, std::int64_t* left_out) const;
  void StartDraining();
  bool draining() const;
  void NoteSubmitted();
  void NoteOver();
  // False where that did not come by `until`, in real time.
  bool WaitUntilAllOver(std::chrono::steady_clock::time_point until);
  std::int64_t live_tickets() const;

  // --- The engine's thread.
  struct Change {
    enum class Kind : std::uint8_t { kStarted, kParked, kEndedWaiting, kEndedRunning };
    TicketNumber ticket = 0;
    Kind kind = Kind::kStarted;
  };
  // What the last turn decided, and when to come back for those who are refused a class's queue.
  void Apply(std::span<const Change> changes, std::span<const Duration> retry_after);
  void SetPolicy(const Policy& policy);

 private:
  using LiveIds = std::map<std::pair<TenantId, std::string>, TicketNumber>;
  struct Ticket {
    ClassId service_class = 0;
    LiveIds::iterator id;   // the end where another ticket took it over
    bool has_place = true;  // in its class's queue
    std::optional<RefusalReason> cancelled = {};
  };
  using Tickets = std::map<TicketNumber, Ticket>;

  void LeaveLocked(Ticket* ticket);
  void ForgetLocked(Tickets::iterator ticket);

  mutable std::mutex mutex_;
  std::condition_variable all_over_;
  // Guarded by mutex_:
  EntryDesk desk_;
  Tickets tickets_;
  LiveIds live_ids_;
  TicketNumber next_ticket_ = 0;
  std::int64_t unfinished_ = 0;
  bool draining_ = false;
};

}  // namespace berth
