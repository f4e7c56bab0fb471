// Where callers' threads and the engine thread meet: places, the waiting requests, who is alive, who must end.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "berth/admission.h"
#include "berth/clock.h"
#include "berth/event.h"
#include "berth/kv.h"
#include "berth/request.h"
#include "engine/engine.h"

namespace berth {

struct QueuedRequest {
  TicketNumber ticket = 0;
  TokenizedRequest request;
  KvDemand demand;
  std::shared_ptr<EventSink> sink;
};

// Thread-safe. A request is *live* from Push until Release or TakeOverdue: its id is taken and so is its place. It is
// *unfinished* until NoteEnded: its last event may still be on its way.
class RequestQueue {
 public:
  explicit RequestQueue(std::int32_t max_queued_requests);

  // --- Any thread.

  // Takes one of max_queued_requests + 1 places (one for the request that runs), or says why not.
  std::variant<TicketNumber, Refusal> TakePlace();
  void ReturnPlace();
  // Queues the request on the caller's place, which is the request's from then on. After a refusal it is still the
  // caller's.
  std::optional<Refusal> Push(QueuedRequest request);
  // The live request of this ticket must end; nothing where there is none.
  void Cancel(TicketNumber ticket);
  // No more places and no more requests; at `until` the rest must end. Of several calls the earliest `until` holds.
  void Drain(TimePoint until);
  bool draining() const;
  void WaitUntilAllEnded();
  // The engine thread ends once nothing is queued.
  void Stop();

  struct Counts {
    std::int64_t running = 0;
    std::int64_t waiting = 0;
    std::int64_t places_taken = 0;
  };
  Counts counts() const;

  // --- Engine thread.

  // Blocks until a request waits (true) or Stop was called and none does (false).
  bool WaitForWork();
  // The waiting requests that must not start any more, and why, in arrival order. They are no longer live.
  struct Overdue {
    QueuedRequest request;
    Refusal refusal;
  };
  std::vector<Overdue> TakeOverdue(TimePoint now);
  // The first waiting request: it runs from now on.
  std::optional<QueuedRequest> StartFirst();
  // Why the running request must end at once, if it must: the client's cancel, or the end of a drain.
  std::optional<Refusal> MustEnd(TicketNumber ticket, TimePoint now) const;
  // The running request is over: its id and its place are free, before its last event is out.
  void Release(TicketNumber ticket);
  // A request's last event is out.
  void NoteEnded();

 private:
  struct Live {
    std::string request_id;
    bool cancelled = false;
  };
  std::optional<Refusal> MustEndLocked(TicketNumber ticket, TimePoint now) const;
  void EndLifeLocked(TicketNumber ticket);

  const std::int32_t max_queued_requests_;

  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable ended_;
  // Guarded by mutex_:
  std::int64_t places_taken_ = 0;
  TicketNumber next_ticket_ = 0;
  std::deque<QueuedRequest> waiting_;
  std::unordered_map<TicketNumber, Live> live_;
  std::unordered_set<std::string> live_ids_;  // of live_
  std::int64_t running_ = 0;
  std::int64_t unfinished_ = 0;
  std::optional<TimePoint> drain_until_;
  bool stopped_ = false;
};

}  // namespace berth
