// What one running request has used so far.
#pragma once

#include <cstdint>
#include <optional>

#include "berth/clock.h"
#include "berth/event.h"

namespace berth {

// Times come in as arguments and never fall.
class UsageMeter {
 public:
  // `start`: when the reservation was made.
  UsageMeter(std::int64_t prompt_tokens, std::int64_t reserved_blocks, TimePoint arrival, TimePoint start);

  // From `now` on so many blocks are held.
  void SetHeldBlocks(std::int64_t blocks, TimePoint now);
  void AddBusy(Duration busy) { accelerator_time_ += busy; }
  void AddOutputToken(TimePoint now);

  std::int64_t output_tokens() const { return output_tokens_; }
  Duration queue_time() const { return start_ - arrival_; }
  // The bill, were the request to end at `end`.
  Usage At(TimePoint end) const;

 private:
  double HeldBlockSeconds(TimePoint now) const;

  std::int64_t prompt_tokens_;
  std::int64_t reserved_blocks_;
  TimePoint arrival_;
  TimePoint start_;
  std::int64_t output_tokens_ = 0;
  std::int64_t held_blocks_ = 0;
  std::int64_t peak_blocks_ = 0;
  double held_block_seconds_ = 0.0;  // until held_since_
  TimePoint held_since_;
  Duration accelerator_time_{};
  std::optional<TimePoint> first_token_;
};

// The bill of a request that never ran.
Usage UsageWithoutStart(std::int64_t prompt_tokens, TimePoint arrival, TimePoint end);

}  // namespace berth
