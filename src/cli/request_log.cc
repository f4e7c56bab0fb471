#include "cli/request_log.h"

#include <pthread.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <string_view>
#include <utility>
#include <variant>

namespace berth::cli {
namespace {

constexpr auto kSecond = std::chrono::seconds(1);

// As the metrics' labels say it.
std::string LowerCase(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

RequestOutcome OutcomeOf(const RequestEnded& request) {
  if (std::holds_alternative<FinishReason>(request.reason)) return RequestOutcome::kOk;
  return berth::OutcomeOf(std::get<RefusalReason>(request.reason), request.started);
}

std::string ReasonOf(const RequestEnded& request) {
  if (const auto* finish = std::get_if<FinishReason>(&request.reason)) return LowerCase(FinishReasonName(*finish));
  return LowerCase(RefusalReasonName(std::get<RefusalReason>(request.reason)));
}

double Milliseconds(Duration d) { return std::round(ToSeconds(d) * 1e6) / 1e3; }

std::string NameOf(std::int32_t index, const std::vector<std::string>& names) {
  return index >= 0 && index < std::ssize(names) ? names[static_cast<std::size_t>(index)] : std::string();
}

}  // namespace

RequestLog::RequestLog(const Clock* clock, Write write)
    : clock_(clock), write_(std::move(write)), thread_([this] { Run(); }) {}

RequestLog::~RequestLog() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void RequestLog::OnPolicy(const PolicyNames& names) {
  const std::lock_guard lock(mutex_);
  classes_.clear();
  tenants_.clear();
  for (const ClassPolicy& c : names.policy->classes) classes_.push_back(c.name);
  for (const TenantPolicy& t : names.policy->tenants) tenants_.push_back(t.name);
}

void RequestLog::OnEnd(const RequestEnded& request) {
  const RequestOutcome outcome = OutcomeOf(request);
  {
    const std::lock_guard lock(mutex_);
    if (!HasRoomLocked(/*refused=*/!request.started)) {
      if (left_out_++ == 0) tell_left_out_at_ = RealTime::now() + kSecond;
    } else {
      waiting_.push_back({.level = outcome == RequestOutcome::kError ? LogLevel::kWarning : LogLevel::kInfo,
                          .message = kEndedMessage,
                          .fields = FieldsOf(request)});
    }
  }
  changed_.notify_one();
}

bool RequestLog::HasRoomLocked(bool refused) {
  if (waiting_.size() >= kMaxWaiting) return false;
  if (!refused) return true;
  const TimePoint now = clock_->Now();
  if (now - second_ >= kSecond) {
    second_ = now;
    refusals_ = 0;
  }
  if (refusals_ >= kRefusalsPerSecond) return false;
  ++refusals_;
  return true;
}

Json RequestLog::FieldsOf(const RequestEnded& request) const {
  const Usage& usage = request.usage;
  Json ttft;  // null where no token came
  if (usage.output_tokens > 0) ttft = Milliseconds(usage.time_to_first_token);
  return {{"request_id", std::string(request.request_id)},
          {"trace_id", std::string(request.trace_id)},
          {"tenant", NameOf(request.tenant, tenants_)},
          {"class", NameOf(request.service_class, classes_)},
          {"outcome", RequestOutcomeName(OutcomeOf(request))},
          {"reason", ReasonOf(request)},
          {"prompt_tokens", usage.prompt_tokens},
          {"cached_tokens", usage.cached_tokens},
          {"output_tokens", usage.output_tokens},
          {"reserved_blocks", usage.reserved_blocks},
          {"peak_blocks", usage.peak_blocks},
          {"kv_block_seconds", std::round(usage.kv_block_seconds * 1e6) / 1e6},
          {"queue_ms", Milliseconds(usage.queue_time)},
          {"ttft_ms", std::move(ttft)}};
}

void RequestLog::Run() {
  pthread_setname_np(pthread_self(), "berth-log");
  std::unique_lock lock(mutex_);
  for (;;) {
    Line line;
    const bool is_last = stopped_ && waiting_.empty();
    if (left_out_ > 0 && (is_last || RealTime::now() >= tell_left_out_at_)) {
      line = {.message = kLeftOutMessage, .fields = {{"left_out", std::exchange(left_out_, 0)}}};
    } else if (!waiting_.empty()) {
      line = std::move(waiting_.front());
      waiting_.pop_front();
    } else if (stopped_) {
      return;
    } else {
      left_out_ > 0 ? static_cast<void>(changed_.wait_until(lock, tell_left_out_at_)) : changed_.wait(lock);
      continue;
    }
    lock.unlock();
    write_(line.level, line.message, line.fields);
    lock.lock();
  }
}

}  // namespace berth::cli
