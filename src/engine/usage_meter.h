// What one request has used so far.
#pragma once

#include <cstdint>
#include <optional>

#include "berth/clock.h"
#include "berth/event.h"

namespace berth {

// Times come in as arguments and never fall. Nothing is used while the request waits or is parked.
class UsageMeter {
 public:
  UsageMeter(std::int64_t prompt_tokens, TimePoint arrival) : prompt_tokens_(prompt_tokens), arrival_(arrival) {}

  // It starts with a reservation of so many blocks, of which it found `cached_tokens` of its prompt computed; or it
  // starts again, after Park.
  void Start(std::int64_t reserved_blocks, std::int64_t cached_tokens, TimePoint now);
  // From `now` on so many blocks are reserved, or held.
  void SetReservedBlocks(std::int64_t blocks, TimePoint now);
  void SetHeldBlocks(std::int64_t blocks, TimePoint now);
  void AddBusy(Duration busy) { accelerator_time_ += busy; }
  void SetRecomputedTokens(std::int64_t tokens) { recomputed_tokens_ = tokens; }
  void NoteToken(TimePoint now);
  // Its blocks are taken from it, and it waits.
  void Park(TimePoint now);

  bool has_token() const { return first_token_.has_value(); }
  bool preempted() const { return preemptions_ > 0; }
  std::int64_t preemptions() const { return preemptions_; }
  Duration queue_time(TimePoint now) const { return start_.value_or(now) - arrival_; }
  // The bill, were the request to end at `end`; the output tokens are counted elsewhere.
  Usage At(TimePoint end) const;

 private:
  // A number of blocks over time.
  struct Integral {
    std::int64_t blocks = 0;
    double block_seconds = 0.0;  // until `since`
    TimePoint since{};

    double At(TimePoint now) const { return block_seconds + static_cast<double>(blocks) * ToSeconds(now - since); }
    void Set(std::int64_t new_blocks, TimePoint now);
  };

  std::int64_t prompt_tokens_;
  TimePoint arrival_;
  std::optional<TimePoint> start_;  // the first
  std::optional<TimePoint> first_token_;
  std::int64_t reserved_blocks_ = 0;  // at the first start
  std::int64_t cached_tokens_ = 0;
  std::int64_t peak_blocks_ = 0;
  std::int64_t preemptions_ = 0;
  std::int64_t recomputed_tokens_ = 0;
  Integral reserved_;
  Integral held_;
  Duration accelerator_time_{};
};

}  // namespace berth
