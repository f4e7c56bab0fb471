#include "engine/request_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/refusals.h"

namespace berth {

RequestQueue::RequestQueue(std::int32_t max_queued_requests) : max_queued_requests_(max_queued_requests) {
  BERTH_CHECK(max_queued_requests >= 0);
}

std::optional<Refusal> RequestQueue::TakePlace() {
  const std::lock_guard lock(mutex_);
  if (drain_until_.has_value()) return Draining();
  if (places_taken_ > max_queued_requests_) return QueueFull(max_queued_requests_);
  ++places_taken_;
  return std::nullopt;
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
  if (!live_.try_emplace(id).second) return DuplicateRequestId(id);
  waiting_.push_back(std::move(request));
  ++unfinished_;
  work_.notify_one();
  return std::nullopt;
}

void RequestQueue::Cancel(const std::string& request_id) {
  const std::lock_guard lock(mutex_);
  if (const auto it = live_.find(request_id); it != live_.end()) it->second.cancelled = true;
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
    const GenerateSpec& spec = it->request.spec;
    std::optional<Refusal> refusal = MustEndLocked(spec.request_id, now);
    if (!refusal.has_value() && now >= spec.deadline) refusal = DeadlineExceeded();
    if (!refusal.has_value()) {
      ++it;
      continue;
    }
    live_.erase(spec.request_id);
    --places_taken_;
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

std::optional<Refusal> RequestQueue::MustEnd(const std::string& request_id, TimePoint now) const {
  const std::lock_guard lock(mutex_);
  return MustEndLocked(request_id, now);
}

std::optional<Refusal> RequestQueue::MustEndLocked(const std::string& request_id, TimePoint now) const {
  const auto it = live_.find(request_id);
  BERTH_CHECK_MSG(it != live_.end(), request_id);
  if (it->second.cancelled) return CancelledByClient();
  if (drain_until_.has_value() && now >= *drain_until_) return Draining();
  return std::nullopt;
}

void RequestQueue::Release(const std::string& request_id) {
  const std::lock_guard lock(mutex_);
  BERTH_CHECK_MSG(live_.erase(request_id) == 1, request_id);
  --places_taken_;
  --running_;
}

void RequestQueue::NoteEnded() {
  const std::lock_guard lock(mutex_);
  if (--unfinished_ == 0) ended_.notify_all();
}

}  // namespace berth
