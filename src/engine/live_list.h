// The requests that live, one by one, for operators.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "berth/clock.h"
#include "berth/units.h"
#include "engine/ticket.h"

namespace berth {

// Which ones; absent = all.
struct LiveFilter {
  std::optional<ClassId> service_class = {};
  std::optional<TenantId> tenant = {};
};

// What the entrance knows of a request.
struct LiveTicket {
  TicketNumber ticket = 0;
  std::string request_id;
  ClassId service_class = 0;
  TenantId tenant = 0;
};

struct LiveRow {
  enum class State : std::uint8_t { kQueued, kPrefill, kDecode, kPreempted };

  LiveTicket ticket;
  State state = State::kQueued;
  Duration age{};  // since it arrived
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;    // of all choices
  std::int64_t reserved_blocks = 0;  // held ones included
  std::int64_t held_blocks = 0;
  std::int64_t preemptions = 0;
  std::optional<Duration> time_left = {};  // absent: no deadline
};

struct LiveList {
  std::vector<LiveRow> rows;  // in the order of arrival
  std::int64_t left_out = 0;  // more that live
};

// So many are asked for at a time, so that a long list never holds up the engine's thread for more than some twenty
// microseconds at once.
inline constexpr std::size_t kLiveRowsAtOnce = 64;

// A question to the engine's thread, and where its answer is waited for. Shared by the two: whichever goes last frees
// it.
class LiveQuestion {
 public:
  explicit LiveQuestion(std::vector<LiveTicket> tickets) : tickets_(std::move(tickets)) {}

  // --- The engine's thread, once: a row for each ticket that is a request it knows.
  std::vector<LiveTicket>& tickets() { return tickets_; }
  void Answer(std::vector<LiveRow> rows) {
    {
      const std::lock_guard lock(mutex_);
      rows_ = std::move(rows);
    }
    answered_.notify_one();
  }

  // --- Who asked. Absent where no answer came in time; then none is read any more.
  std::optional<std::vector<LiveRow>> Wait(Duration patience) {
    std::unique_lock lock(mutex_);
    if (!answered_.wait_for(lock, patience, [this] { return rows_.has_value(); })) return std::nullopt;
    return std::move(rows_);
  }

 private:
  std::vector<LiveTicket> tickets_;
  std::mutex mutex_;
  std::condition_variable answered_;
  std::optional<std::vector<LiveRow>> rows_;  // guarded by mutex_
};

}  // namespace berth
