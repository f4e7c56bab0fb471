#include "engine/entrance.h"

#include <algorithm>

#include "base/check.h"
#include "engine/refusals.h"

namespace berth {

namespace {

// However soon a place may be free: those who are refused together must not all be back at once.
constexpr Duration kLeastRetryAfter = std::chrono::milliseconds(100);

Arrival ArrivalOf(const TicketRequest& request) {
  Arrival arrival;
  arrival.service_class = request.service_class;
  arrival.tenant = request.tenant;
  arrival.n = request.n;
  arrival.least_prompt_tokens = request.least_prompt_tokens;
  return arrival;
}

}  // namespace

Entrance::Entrance(const Policy& policy) : desk_(policy) {
  for (ClassId c = 0; c < std::ssize(policy.classes); ++c) desk_.SetRetryAfter(c, kLeastRetryAfter);
}

std::variant<EntranceTicket, Refusal> Entrance::Enter(const TicketRequest& request) {
  Arrival arrival = ArrivalOf(request);
  std::pair<TenantId, std::string> id(request.tenant, request.request_id);
  const std::lock_guard lock(mutex_);
  const auto place = live_ids_.lower_bound(id);
  const bool is_live = place != live_ids_.end() && place->first == id;
  arrival.duplicate_id = is_live && !request.replaces_live;
  if (draining_) return Draining();
  // The earlier attempt's place is free for this one, unless this one is refused.
  Ticket* const earlier = is_live && request.replaces_live ? &tickets_.at(place->second) : nullptr;
  const bool had_place = earlier != nullptr && earlier->has_place;
  if (had_place) desk_.Leave(earlier->service_class);
  if (std::optional<Refusal> refusal = desk_.Enter(arrival)) {
    if (had_place) desk_.Park(earlier->service_class);
    return *std::move(refusal);
  }
  EntranceTicket ticket{.number = next_ticket_++};
  if (earlier != nullptr) {
    ticket.replaced = place->second;
    earlier->has_place = false;
    earlier->id = live_ids_.end();
    place->second = ticket.number;
  }
  const auto live = earlier != nullptr ? place : live_ids_.emplace_hint(place, std::move(id), ticket.number);
  tickets_.emplace_hint(tickets_.end(), ticket.number, Ticket{.service_class = request.service_class, .id = live});
  return ticket;
}

std::optional<Refusal> Entrance::Judge(const TicketRequest& request) const {
  Arrival arrival = ArrivalOf(request);
  const std::lock_guard lock(mutex_);
  arrival.duplicate_id = live_ids_.contains({request.tenant, request.request_id});
  if (draining_) return Draining();
  return desk_.Judge(arrival);
}

void Entrance::GiveBack(TicketNumber ticket) {
  const std::lock_guard lock(mutex_);
  const auto it = tickets_.find(ticket);
  BERTH_CHECK(it != tickets_.end());
  LeaveLocked(&it->second);
  ForgetLocked(it);
}

void Entrance::LeaveLocked(Ticket* ticket) {
  if (std::exchange(ticket->has_place, false)) desk_.Leave(ticket->service_class);
}

void Entrance::ForgetLocked(Tickets::iterator ticket) {
  if (ticket->second.id != live_ids_.end()) live_ids_.erase(ticket->second.id);
  tickets_.erase(ticket);
}

bool Entrance::MarkCancelled(TicketNumber ticket, RefusalReason reason) {
  const std::lock_guard lock(mutex_);
  const auto it = tickets_.find(ticket);
  if (it == tickets_.end() || it->second.cancelled.has_value()) return false;
  it->second.cancelled = reason;
  return true;
}

std::optional<RefusalReason> Entrance::WhyCancelled(TicketNumber ticket) const {
  const std::lock_guard lock(mutex_);
  const auto it = tickets_.find(ticket);
  return it == tickets_.end() ? std::nullopt : it->second.cancelled;
}

std::optional<TicketNumber> Entrance::Find(TenantId tenant, const std::string& request_id) const {
  const std::lock_guard lock(mutex_);
  const auto it = live_ids_.find({tenant, request_id});
  return it == live_ids_.end() ? std::nullopt : std::optional(it->second);
}

bool Entrance::Walk(const LiveFilter& filter, std::size_t look_at, std::size_t most, TicketNumber* from,
                    std::vector<LiveTicket>* found, std::int64_t* left_out) const {
  const std::lock_guard lock(mutex_);
  auto it = tickets_.lower_bound(*from);
  for (; it != tickets_.end() && look_at > 0; ++it, --look_at) {
    if (it->second.id == live_ids_.end()) continue;  // cancelled for a retry that has its id
    const auto& [tenant, request_id] = it->second.id->first;
    if (filter.service_class.value_or(it->second.service_class) != it->second.service_class) continue;
    if (filter.tenant.value_or(tenant) != tenant) continue;
    if (found->size() < most) {
      found->push_back({it->first, request_id, it->second.service_class, tenant});
    } else {
      ++*left_out;
    }
  }
  if (it == tickets_.end()) return false;
  *from = it->first;
  return true;
}

void Entrance::StartDraining() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

bool Entrance::draining() const {
  const std::lock_guard lock(mutex_);
  return draining_;
}

void Entrance::NoteSubmitted() {
  const std::lock_guard lock(mutex_);
  ++unfinished_;
}

void Entrance::NoteOver() {
  const std::lock_guard lock(mutex_);
  if (--unfinished_ == 0) all_over_.notify_all();
}

bool Entrance::WaitUntilAllOver(std::chrono::steady_clock::time_point until) {
  std::unique_lock lock(mutex_);
  return all_over_.wait_until(lock, until, [this] { return unfinished_ == 0; });
}

std::int64_t Entrance::live_tickets() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(tickets_.size());
}

void Entrance::Apply(std::span<const Change> changes, std::span<const Duration> retry_after) {
  const std::lock_guard lock(mutex_);
  for (const Change& change : changes) {
    const auto it = tickets_.find(change.ticket);
    BERTH_CHECK(it != tickets_.end());
    switch (change.kind) {
      case Change::Kind::kStarted:
        LeaveLocked(&it->second);
        break;
      case Change::Kind::kParked:
        it->second.has_place = true;
        desk_.Park(it->second.service_class);
        break;
      case Change::Kind::kEndedWaiting:
        LeaveLocked(&it->second);
        ForgetLocked(it);
        break;
      case Change::Kind::kEndedRunning:
        ForgetLocked(it);
        break;
    }
  }
  for (ClassId c = 0; c < std::ssize(retry_after); ++c) {
    desk_.SetRetryAfter(c, std::max(kLeastRetryAfter, retry_after[static_cast<std::size_t>(c)]));
  }
}

void Entrance::SetPolicy(const Policy& policy) {
  const std::lock_guard lock(mutex_);
  desk_.SetPolicy(policy);
}

}  // namespace berth
