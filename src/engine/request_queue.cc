#include "engine/request_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/refusals.h"

namespace berth {

RequestQueue::RequestQueue(std::int32_t max_queued_requests) : max_queued_requests_(max_queued_requests) {
  BERTH_CHECK(max_queued_requests >= 0);
}

std::variant<TicketNumber, Refusal> RequestQueue::TakePlace() {
  const std::lock_guard lock(mutex_);
  if (drain_until_.has_value()) return Draining();
  if (places_taken_ > max_queued_requests_) return QueueFull(max_queued_requests_);
  ++places_taken_;
  return next_ticket_++;
}

void RequestQueue::ReturnPlace() {
  const std::lock_guard lock(mutex_);
  BERTH_CHECK(places_taken_ > 0);
  --places_taken_;
}

std::optional<Refusal> RequestQueue::Push(QueuedRequest request) {
  const std::lock_guard lock(mutex_);
  if (drain_until_.has_value()) return Draining();
  const std::string& id = request.request.spec.request_id;
  if (!live_ids_.insert(id).second) return DuplicateRequestId(id);
  BERTH_CHECK(live_.try_emplace(request.ticket, Live{.request_id = id}).second);
  waiting_.push_back(std::move(request));
  ++unfinished_;
  work_.notify_one();
  return std::nullopt;
}

void RequestQueue::Cancel(TicketNumber ticket) {
  const std::lock_guard lock(mutex_);
  if (const auto it = live_.find(ticket); it != live_.end()) it->second.cancelled = true;
}

void RequestQueue::Drain(TimePoint until) {
  const std::lock_guard lock(mutex_);
  drain_until_ = std::min(drain_until_.value_or(until), until);
}

bool RequestQueue::draining() const {
  const std::lock_guard lock(mutex_);
  return drain_until_.has_value();
}

void RequestQueue::WaitUntilAllEnded() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return unfinished_ == 0; });
}

void RequestQueue::Stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  work_.notify_one();
}

RequestQueue::Counts RequestQueue::counts() const {
  const std::lock_guard lock(mutex_);
  return {.running = running_, .waiting = static_cast<std::int64_t>(waiting_.size()), .places_taken = places_taken_};
}

bool RequestQueue::WaitForWork() {
  std::unique_lock lock(mutex_);
  work_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
  return !waiting_.empty();
}

std::vector<RequestQueue::Overdue> RequestQueue::TakeOverdue(TimePoint now) {
  std::vector<Overdue> overdue;
  const std::lock_guard lock(mutex_);
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    std::optional<Refusal> refusal = MustEndLocked(it->ticket, now);
    if (!refusal.has_value() && now >= it->request.spec.deadline) refusal = DeadlineExceeded();
    if (!refusal.has_value()) {
      ++it;
      continue;
    }
    EndLifeLocked(it->ticket);
    overdue.push_back({std::move(*it), *std::move(refusal)});
    it = waiting_.erase(it);
  }
  return overdue;
}

std::optional<QueuedRequest> RequestQueue::StartFirst() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) return std::nullopt;
  QueuedRequest first = std::move(waiting_.front());
  waiting_.pop_front();
  ++running_;
  return first;
}

std::optional<Refusal> RequestQueue::MustEnd(TicketNumber ticket, TimePoint now) const {
  const std::lock_guard lock(mutex_);
  return MustEndLocked(ticket, now);
}

std::optional<Refusal> RequestQueue::MustEndLocked(TicketNumber ticket, TimePoint now) const {
  const auto it = live_.find(ticket);
  BERTH_CHECK(it != live_.end());
  if (it->second.cancelled) return CancelledByClient();
  if (drain_until_.has_value() && now >= *drain_until_) return Draining();
  return std::nullopt;
}

void RequestQueue::Release(TicketNumber ticket) {
  const std::lock_guard lock(mutex_);
  EndLifeLocked(ticket);
  --running_;
}

void RequestQueue::EndLifeLocked(TicketNumber ticket) {
  const auto it = live_.find(ticket);
  BERTH_CHECK(it != live_.end());
  live_ids_.erase(it->second.request_id);
  live_.erase(it);
  --places_taken_;
}

void RequestQueue::NoteEnded() {
  const std::lock_guard lock(mutex_);
  if (--unfinished_ == 0) ended_.notify_all();
}

}  // namespace berth
